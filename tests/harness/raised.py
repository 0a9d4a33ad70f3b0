"""What the functions of users may raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from delayq import Reject


class OfNobody(BaseException):
    """An error outside Exception that no library knows."""


class Unspeakable(Exception):
    """An error that cannot be shown."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class UnspeakableReject(Reject):
    """A verdict whose own code fails."""

    reason = property(lambda _: (_ for _ in ()).throw(SystemExit(4)))

    def __init__(self) -> None:
        Exception.__init__(self)


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("bad luck"),
    "SystemExit": lambda: SystemExit(1),
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "OfNobody": OfNobody,
    "Unspeakable": Unspeakable,
    "UnspeakableReject": UnspeakableReject,
}
