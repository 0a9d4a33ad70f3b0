"""What was sent to a queue, as far as it is still known."""

from __future__ import annotations

import datetime as dt
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from delayq.errors import UnreadableEnvelope
from delayq.model.message_info import MessageInfo
from delayq.model.placement import State
from delayq.model.queue_stats import QueueStats
from delayq.testing.base_clock import BaseClock
from delayq.testing.drain import Calls

STATES: tuple[State, ...] = ("pending", "ready", "unack", "retry", "dead", "held")
ALL = 1_000_000


@dataclass(frozen=True)
class SentInfo:
    """A message that was sent.

    Attributes:
        payload: as a handler gets it: types that JSON lacks have become the nearest ones. If another program wrote one
            that cannot be read, the error.
        due_at: when its first delivery was or is due; None if it was taken without a `Clock`.
        state: where it is now; "gone" if it was handled.
    """

    id: str
    payload: Any
    headers: dict[str, Any]
    created_at: dt.datetime
    due_at: dt.datetime | None
    state: State | Literal["gone"]

    @property
    def due_in(self) -> float | None:
        """Seconds from its send until its due time."""
        return None if self.due_at is None else (self.due_at - self.created_at).total_seconds()

    def __str__(self) -> str:
        due = "" if self.due_in is None else f", due in {self.due_in:g} s"
        headers = f", headers={self.headers}" if self.headers else ""
        return f"{self.payload!r}{due} ({self.id}, {self.state}{headers})"


def messages_sent(queue: Any) -> Calls[list[SentInfo]]:
    """Find what was sent to a queue of either face; see `assertions.sent`."""
    clock = yield partial(queue.execute, _clock)
    handled = (
        [message for message in clock.handled if message.queue == queue.name] if isinstance(clock, BaseClock) else []
    )
    first: dict[tuple[str, dt.datetime], Any] = {}
    for message in handled:
        first.setdefault((message.id, message.created_at), message)
    found = {}
    for state in STATES:
        for info in (yield partial(queue.peek, state, ALL)):
            if info.created_at is not None:
                found[info.id, info.created_at] = _of_info(info, first.get((info.id, info.created_at)))
    gone = {key: _of_message(message) for key, message in first.items() if key not in found}
    return sorted(
        [*found.values(), *gone.values()],
        key=lambda each: (each.created_at, each.due_at or each.created_at, each.id),
    )


def messages_left(queue: Any) -> Calls[list[SentInfo | str]]:
    """Find the messages that wait, run or are dead; for unreadable ones, the id."""
    left: list[SentInfo | str] = [message for message in (yield from messages_sent(queue)) if message.state != "gone"]
    for state in STATES:
        left += [info.id for info in (yield partial(queue.peek, state, ALL)) if info.created_at is None]
    return left


def dead_letters(queue: Any) -> Calls[tuple[list[MessageInfo], QueueStats]]:
    """Find the dead letters, and count everything else."""
    letters = yield partial(queue.dead.list, ALL)
    return letters, (yield queue.stats)


def _clock(context: Any) -> Generator[Any, Any, Any]:
    yield from ()
    return context.clock


def _of_info(info: MessageInfo, first: Any) -> SentInfo:
    assert info.created_at is not None
    assert info.state != "deferred", "it was found in Redis"
    due = first.due_at if first else info.due_at if info.state in ("pending", "ready") else None
    return SentInfo(info.id, payload_of(info), info.headers or {}, info.created_at, due, info.state)


def _of_message(message: Any) -> SentInfo:
    return SentInfo(message.id, payload_of(message), message.headers, message.created_at, message.due_at, "gone")


def payload_of(message: Any) -> Any:
    """Return a message's payload; for one that cannot be read, its error, which equals no payload."""
    try:
        return message.payload
    except UnreadableEnvelope as error:
        return error
