"""Stopping on a signal once the current work is done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from delayq import signals


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Let SIGTERM, SIGINT and SIGHUP set an event, and do nothing else, until the block ends."""
    stop = threading.Event()

    def note(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    with signals.handled(note):
        yield stop
