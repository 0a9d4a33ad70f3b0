"""Handling the signals that end a command: SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from delayq import signals


@contextmanager
def stopping() -> Iterator[threading.Event]:
    """Let SIGTERM, SIGINT and SIGHUP set an event, and do nothing else, until the block ends."""
    stop = threading.Event()
    with signals.handled(lambda *_: stop.set()):
        yield stop
