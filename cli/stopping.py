"""Stopping on a signal once the current work is done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Let SIGTERM and SIGINT set an event, and do nothing else, until the block ends."""
    stop = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
