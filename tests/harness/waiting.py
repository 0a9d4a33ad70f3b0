"""Waiting for what another thread or process is about to do."""

from __future__ import annotations

import time
from collections.abc import Callable


def eventually(condition: Callable[[], bool], seconds: float = 240) -> bool:
    """Wait until a condition holds; False when it does not within `seconds`, a bound that no test is about."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
