"""Counting what a consumer is given."""

from __future__ import annotations

import json
import math
import os
import resource
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from messages import DIGITS

SETTLE = 1.2  # seconds in which the last acks go out; Celery's loop may be a second late with them


class Tally:
    """Counts what a consumer's handler is given, and ends the process when all have come.

    Args:
        out: to the runner.
        wanted: messages.
        patience: seconds without a message, after which the process ends with what there is.
    """

    def __init__(self, out: TextIO, wanted: int, patience: float) -> None:
        self._out = out
        self._wanted = wanted
        self._patience = patience
        self._handled: list[tuple[float, str]] = []
        self._full = threading.Event()
        self._cpu_at_ready = 0.0

    def note(self, payload: str) -> None:
        """Take the time of a message: all that a handler does."""
        self._handled.append((time.time(), payload[:DIGITS]))
        if len(self._handled) >= self._wanted:
            self._full.set()

    def ready(self, stop: Callable[[], None] = lambda: None) -> None:
        """Tell the runner that messages are consumed from now on.

        Args:
            stop: ends the processes that this one has started, and waits for them.
        """
        self._cpu_at_ready = cpu_seconds(resource.RUSAGE_SELF)
        say(self._out, "ready")
        threading.Thread(target=self._finish, args=(stop,), daemon=True).start()

    def wait(self) -> bool:
        """Wait until all have come; return whether they have, False when none came for too long."""
        last = time.time()
        while not self._full.wait(last + self._patience - time.time()):
            newest = self._handled[-1][0] if self._handled else last
            if newest <= last:
                return False
            last = newest
        return True

    def _finish(self, stop: Callable[[], None]) -> None:
        self.wait()
        used = cpu_seconds(resource.RUSAGE_SELF)
        time.sleep(SETTLE)
        stop()
        say(self._out, json.dumps(self.report(used + cpu_seconds(resource.RUSAGE_CHILDREN))))
        os._exit(0)  # not all frameworks have a clean stop, or a quick one

    def report(self, cpu: float) -> dict[str, Any]:
        """Return what was counted; `cpu` is the seconds that it took."""
        times = sorted(at for at, _ in self._handled)
        return {
            "messages": len(times),
            "first": times[0] if times else None,
            "warm": times[math.ceil(len(times) / 10) - 1] if times else None,
            "last": times[-1] if times else None,
            "lateness_ms": [round(at * 1000 - int(due), 2) for at, due in self._handled],
            "cpu_seconds": round(cpu, 3),
            "cpu_at_ready": round(self._cpu_at_ready, 3),
        }


def cpu_seconds(who: int) -> float:
    """Return the user and system time of this process, or of those that it has started and waited for."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def say(out: TextIO, line: str) -> None:
    """Print a line for the runner."""
    out.write(line + "\n")
    out.flush()
