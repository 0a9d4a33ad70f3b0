"""What an engine asks of its driver, beside the commands and the file work of operations: waits, listening, hooks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from delayq.protocol.operation import Program

T = TypeVar("T")


class WaitForWork(NamedTuple):
    """Wait for an outcome, a call from outside or, if `listening`, a token; the answer is a `WakeReason`."""

    seconds: float
    listening: bool = False


class WakeReason(NamedTuple):
    """What ended a wait: something within this process (`disturbed`), or a token."""

    disturbed: bool
    token: bool


class Sleep(NamedTuple):
    """Wait, whatever happens."""

    seconds: float


class BellSource(NamedTuple):
    """A queue's bell to listen on."""

    key: str


class StreamSource(NamedTuple):
    """A shard of a topic to listen on, and the key that tells of records to be appended.

    Attributes:
        seen: the ids behind which the two are read.
    """

    stream: str
    waking: str
    seen: tuple[str, str]


class Listen(NamedTuple):
    """Be woken by the next token of any of these sources."""

    sources: Sequence[BellSource | StreamSource]


class StopListening(NamedTuple):
    """Be woken no more; the answer is whether a token came all the same, which must be used or passed on."""


class CloseListeners(NamedTuple):
    """Give up the connections that were listened on: they may be broken."""


class Call(NamedTuple):
    """Call a function of the user's, and await what it returns if that is async."""

    function: Callable[[Any], object]
    subject: object

    def __call__(self) -> object:
        return self.function(self.subject)


Effects: TypeAlias = Program[T]
"""What an engine does, one effect after the other: those above, or those of an operation."""


def done_by(effect: object) -> float:
    """Return when an effect should be done, on the monotonic clock: now, but for one that waits."""
    return time.monotonic() + (max(0.0, effect.seconds) if isinstance(effect, WaitForWork | Sleep) else 0.0)
