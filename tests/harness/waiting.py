"""Wait for another thread or process, and measure how long something takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Self

LONGEST_STEP = 0.05  # seconds


def eventually(condition: Callable[[], bool], seconds: float = 240) -> bool:
    """Wait until a condition holds; return False if it does not within `seconds`, which no test depends on."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > seconds:
            return False
        time.sleep(min(max(waited / 20, 0.005), 0.02))  # a long wait must not slow down what it waits for
    return True


class Stopwatch:
    """Measures how long the block of a `with` takes.

    Attributes:
        elapsed: the seconds by the clock: for a least time.
        running: the seconds for which this process ran: for a most time. A pause of the machine counts as LONGEST_STEP.
    """

    def __init__(self) -> None:
        self.elapsed = self.running = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._count, daemon=True)

    def __enter__(self) -> Self:
        self._last = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _count(self) -> None:
        is_over = False
        while not is_over:
            is_over = self._over.wait(LONGEST_STEP / 10)
            now = time.monotonic()
            self.elapsed += now - self._last
            self.running += min(now - self._last, LONGEST_STEP)
            self._last = now
