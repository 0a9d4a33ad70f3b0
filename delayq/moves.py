"""What a run of a consumer asks of the face that it runs on: round trips, waits, and handlers to be run."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from delayq import outcome as oc
from delayq.calls import Steps
from delayq.handler_times import Times

D = TypeVar("D")  # a message of either face, or a record
T = TypeVar("T")


class Rest(NamedTuple):
    """Wait for an outcome, a call from outside or, if `bells` is set, a bell; it is answered by a `Woken`."""

    seconds: float
    bells: bool = False


class Woken(NamedTuple):
    """What has ended a rest: something within this process, or a bell."""

    disturbed: bool
    rang: bool


class Pause(NamedTuple):
    """Wait, whatever happens."""

    seconds: float


class Ring(NamedTuple):
    """Something to be done with the bells: listen, close them, or hush them; that is answered by whether any rang.

    Attributes:
        seen: of the bells of a topic's shards, the ids behind which its two keys are to be read.
    """

    verb: str
    seen: Sequence[tuple[str, str]] = ()


LISTEN, CLOSE, HUSH = Ring("listen"), Ring("close"), Ring("hush")

Move: TypeAlias = Steps[Any] | Rest | Pause | Ring
Moves: TypeAlias = Generator[Move, Any, T]
"""What a run asks for, one move after the other: an operation, whose result it is sent, or a wait."""


def done_by(move: Move) -> float:
    """Return when a move should be done, on the monotonic clock: now, but for one that waits."""
    return time.monotonic() + (max(0.0, move.seconds) if isinstance(move, Rest | Pause) else 0.0)


class Crew(Protocol[D]):
    """What runs handlers: threads, or tasks.

    Attributes:
        count: of handlers, or batches, that run at the same time.
        times: how long handlers have run.
    """

    count: int
    times: Times

    def room(self, unfinished: int, ahead: bool = True) -> int: ...
    def submit(self, messages: list[D]) -> None: ...
    def adapt(self) -> None: ...
    def hasten(self) -> None: ...
    def outcomes(self) -> list[tuple[D, oc.Outcome]]: ...
    def unstarted(self) -> list[D]: ...
    def interrupt(self) -> bool: ...
    @property
    def is_behind(self) -> bool: ...
