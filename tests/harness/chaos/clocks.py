"""Wrong clocks, which can be set while the processes that use them run."""

from __future__ import annotations

import time
from pathlib import Path


class WrongClock:
    """A clock that is ahead of the machine's by an offset stored in a file.

    Args:
        path: the file, which is created.
        offset: seconds; negative if behind.
    """

    def __init__(self, path: Path, offset: float = 0.0) -> None:
        self.path = path
        self._steps: list[tuple[float, float, float]] = []  # monotonic time, machine time, offset; all in seconds
        self._ends: list[float] = []  # monotonic end of the time before each step
        self.set(offset)

    def set(self, offset: float) -> None:
        """Step the clock: from now on it is `offset` seconds ahead of the machine's."""
        self._steps.append((time.monotonic(), true_time(), offset))
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{offset:+}")
        fresh.replace(self.path)  # so that no process reads half of it
        self._ends.append(time.monotonic())

    def now_ms(self) -> float:
        """Return its time, ms."""
        return (true_time() + self._steps[-1][2]) * 1000

    def shown(self, since: float, until: float) -> tuple[float, float]:
        """Return the lowest and the highest time, ms, that it showed between two monotonic times."""
        ends = [*self._ends[1:], float("inf")]  # for a moment, a process may have read either
        found = []
        for (at, true, offset), end in zip(self._steps, ends, strict=True):
            if at <= until and since <= end:
                for moment in (max(at, since), min(end, until)):
                    found.append((true + offset + moment - at) * 1000)  # noqa: PERF401  # one line a thought
        return min(found), max(found)

    def offsets(self) -> list[float]:
        """Return its offsets in order."""
        return [offset for _, _, offset in self._steps]


def read_offset(path: Path) -> float:
    """Return by how many seconds the clock of a file is ahead."""
    return float(path.read_text())


def true_time() -> float:
    """Return the machine's time in seconds since 1970, even in a process whose `time.time` is wrong."""
    return time.clock_gettime(time.CLOCK_REALTIME)
