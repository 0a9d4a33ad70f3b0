"""Wait for another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 240) -> bool:
    """Wait until a condition holds; return False if it does not within `seconds`, which no test depends on."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
