"""Handling the signals that end a command: SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from delayq.runtime import signals


@contextmanager
def handling_signals(handler: Callable[[int, Any], object] | signal.Handlers) -> Iterator[None]:
    """Let a function handle these signals until the block ends."""
    before = {number: signal.signal(number, handler) for number in signals.ending()}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, signal.SIG_DFL if old is None else old)


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Let these signals set an event, and do nothing else, until the block ends."""
    stop = threading.Event()
    with handling_signals(lambda *_: stop.set()):
        yield stop
