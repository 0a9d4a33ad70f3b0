"""The effects that an engine yields to its driver, beside those of operations: waits, listening and hooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from delayq.protocol.operation import Program
from delayq.transport.bell_source import Source

T = TypeVar("T")


class WaitForWork(NamedTuple):
    """Wait for an outcome, a call from outside or, if `listening`, a token; the answer is a `WakeReason`.

    Attributes:
        sources: listen on these from now on; empty to change nothing.
        is_exact: whether a message may be late if it ends a millisecond late.
    """

    seconds: float
    listening: bool = False
    sources: Sequence[Source] = ()
    is_exact: bool = True


class WakeReason(NamedTuple):
    """What ended a wait: an event within this process (`disturbed`), or a token."""

    disturbed: bool
    token: bool


class Sleep(NamedTuple):
    """Wait for the whole time."""

    seconds: float


class StopListening(NamedTuple):
    """Stop listening; the answer is whether a token came meanwhile, which must be used or passed on."""


class CloseListeners(NamedTuple):
    """Close the connections that were listened on: they may be broken."""


class Call(NamedTuple):
    """Call one of the user's functions, and await its result if it is async."""

    function: Callable[[Any], object]
    subject: object

    def __call__(self) -> object:
        return self.function(self.subject)


Effects: TypeAlias = Program[T]
"""What an engine yields, one after the other: the effects above, or those of an operation."""
