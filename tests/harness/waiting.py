"""Wait for another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 240) -> bool:
    """Wait until a condition holds; return False if it does not within `seconds`, which no test depends on."""
    began = time.monotonic()
    while not condition():
        waited = time.monotonic() - began
        if waited > seconds:
            return False
        time.sleep(min(max(waited / 20, 0.005), 0.02))  # a long wait must not slow down what it waits for
    return True
