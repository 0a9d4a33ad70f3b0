"""Clocks that are wrong, and are set while the processes that go by them run."""

from __future__ import annotations

import time
from pathlib import Path


class WrongClock:
    """A clock that is ahead of the machine's by an offset, which a file holds.

    Args:
        path: of the file; it is made.
        offset: seconds; behind, when negative.
    """

    def __init__(self, path: Path, offset: float = 0.0) -> None:
        self.path = path
        self._steps: list[tuple[float, float, float]] = []  # monotonic, by the machine's clock, ahead; all seconds
        self._ends: list[float] = []  # monotonic, of what was before each step
        self.set(offset)

    def set(self, offset: float) -> None:
        """Step the clock: let it be ahead of the machine's by `offset` seconds from now on."""
        self._steps.append((time.monotonic(), true_time(), offset))
        fresh = self.path.with_suffix(".new")
        fresh.write_text(f"{offset:+}")
        fresh.replace(self.path)  # no process reads half of it
        self._ends.append(time.monotonic())

    def now_ms(self) -> float:
        """Return its time, ms."""
        return (true_time() + self._steps[-1][2]) * 1000

    def shown(self, since: float, until: float) -> tuple[float, float]:
        """Return the lowest and the highest time, ms, that it has shown between two monotonic times."""
        ends = [*self._ends[1:], float("inf")]  # for a moment, either may have been read
        found = []
        for (at, true, offset), end in zip(self._steps, ends, strict=True):
            if at <= until and since <= end:
                for moment in (max(at, since), min(end, until)):
                    found.append((true + offset + moment - at) * 1000)  # noqa: PERF401  # one line a thought
        return min(found), max(found)

    def offsets(self) -> list[float]:
        """Return the offsets that it has had, one after the other."""
        return [offset for _, _, offset in self._steps]


def read_offset(path: Path) -> float:
    """Return by how many seconds the clock of that file is ahead."""
    return float(path.read_text())


def true_time() -> float:
    """Return the machine's time, seconds since 1970, also in a process whose `time.time` is wrong."""
    return time.clock_gettime(time.CLOCK_REALTIME)
