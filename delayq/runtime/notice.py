"""Tells a thread that it need not wait longer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Notice:
    """An event that is waited for with a timeout, by one thread."""

    make: Callable[[], Any] = threading.Event

    def __init__(self) -> None:
        self._event = type(self).make()

    def wait(self, seconds: float) -> Any:
        """Return when it is given, or after `seconds`."""
        self._event.wait(seconds)
        self._event.clear()

    def give(self) -> None:
        """End the wait, or the next one."""
        self._event.set()


def belongs(executor: Any, forget: Callable[[], None]) -> None:
    """Do nothing: a blocking executor may be used anywhere."""
