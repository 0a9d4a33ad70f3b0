"""What was sent to a queue, as far as that can still be told."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from delayq.model.message import Message
from delayq.model.message_info import MessageInfo
from delayq.model.placement import State
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import computed
from delayq.queue import Queue
from delayq.testing.clock import Clock

STATES: tuple[State, ...] = ("pending", "ready", "unack", "retry", "dead")
ALL = 1_000_000


@dataclass(frozen=True)
class SentInfo:
    """A message that was sent.

    Attributes:
        payload: as a handler gets it: what JSON lacks has taken its nearest form.
        due_at: when its first delivery was or is due; None for one that was taken by other means than a `Clock`.
        state: where it is now; "gone" when it was handled.
    """

    id: str
    payload: Any
    headers: dict[str, Any]
    created_at: dt.datetime
    due_at: dt.datetime | None
    state: State | Literal["gone"]

    @property
    def due_in(self) -> float | None:
        """Seconds from its sending until its due time."""
        return None if self.due_at is None else (self.due_at - self.created_at).total_seconds()

    def __str__(self) -> str:
        due = "" if self.due_in is None else f", due in {self.due_in:g} s"
        headers = f", headers={self.headers}" if self.headers else ""
        return f"{self.payload!r}{due} ({self.id}, {self.state}{headers})"


def sent(queue: Queue) -> list[SentInfo]:
    """Return what was sent to a queue and not withdrawn, in the order of the sends.

    Of what was sent while the clock stood, the earlier due comes first, then the lower id: messages that were sent
    without one are numbered.

    That is what waits, runs or is dead now, and, of a queue in memory, what a `Clock` has handled. What was cancelled
    or purged is not among them, nor what was received and acked otherwise.
    """
    clock = queue.execute(_clock)
    handled = [message for message in clock.handled if message.queue == queue.name] if isinstance(clock, Clock) else []
    first: dict[tuple[str, dt.datetime], Message] = {}
    for message in handled:
        first.setdefault((message.id, message.created_at), message)
    found = {}
    for state in STATES:
        for info in queue.peek(state, ALL):
            if info.created_at is not None:
                found[info.id, info.created_at] = _of_info(info, first.get((info.id, info.created_at)))
    gone = {key: _of_message(message) for key, message in first.items() if key not in found}
    return sorted(
        [*found.values(), *gone.values()],
        key=lambda each: (each.created_at, each.due_at or each.created_at, each.id),
    )


@computed
def _clock(context: QueueContext) -> Callable[[], float | str]:
    return context.clock


def _of_info(info: MessageInfo, first: Message | None) -> SentInfo:
    assert info.created_at is not None
    assert info.state != "deferred", "it was found in Redis"
    due = first.due_at if first else info.due_at if info.state in ("pending", "ready") else None
    return SentInfo(info.id, info.payload, info.headers or {}, info.created_at, due, info.state)


def _of_message(message: Message) -> SentInfo:
    return SentInfo(message.id, message.payload, message.headers, message.created_at, message.due_at, "gone")
