"""Counts what a consumer receives."""

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

SETTLE = 1.2  # seconds for the last acks; Celery's loop may send them a second late


class Tally:
    """Counts what a consumer's handler receives, and ends the process once all messages have arrived.

    Args:
        out: to the runner.
        wanted: the expected number of messages.
        patience: seconds without a message after which the process ends with what it has.
    """

    def __init__(self, out: TextIO, wanted: int, patience: float) -> None:
        self._out = out
        self._wanted = wanted
        self._patience = patience
        self._handled: list[tuple[float, str]] = []
        self._full = threading.Event()
        self._cpu_at_ready = 0.0

    def note(self, payload: str) -> None:
        """Record the time of a message; a handler does nothing else."""
        self._handled.append((time.time(), payload[:DIGITS]))
        if len(self._handled) >= self._wanted:
            self._full.set()

    def ready(self, stop: Callable[[], None] = lambda: None) -> None:
        """Tell the runner that the consumer is ready.

        Args:
            stop: stops the processes that this one has started, and waits for them.
        """
        self._cpu_at_ready = cpu_seconds(resource.RUSAGE_SELF)
        say(self._out, "ready")
        threading.Thread(target=self._finish, args=(stop,), daemon=True).start()

    def wait(self) -> bool:
        """Wait until all messages have arrived; return False if none arrived for too long."""
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
        os._exit(0)  # not every framework stops cleanly and quickly

    def report(self, cpu: float) -> dict[str, Any]:
        """Return the counts; `cpu` is the CPU time in seconds."""
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
    """Return the user and system time of this process, or of its children that it has waited for."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def say(out: TextIO, line: str) -> None:
    """Print a line for the runner."""
    out.write(line + "\n")
    out.flush()
