"""Act on any number of messages, with a result word for each."""

from __future__ import annotations

import datetime as dt
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from delayq.model.outcome import BURIED
from delayq.model.placement import DELIVERABLE
from delayq.model.text import encode_id
from delayq.model.units import MAX_TIME_MS, due_word, milliseconds, timestamp_ms
from delayq.model.validation import checked_ids
from delayq.operations import schedule_chain
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command, Raw
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import MAX_MOVED, QueueCommands

if TYPE_CHECKING:
    from delayq.model.actions import How

Act: TypeAlias = Callable[[QueueCommands, Sequence[str]], Operation[list[str]]]
"""Acts on up to 250 messages of a shard; returns a word for each, in their order."""


_TAKEN_FROM_SCHEDULES = {"cancelled", "buried", "rescheduled"}
"""The words after which an occurrence does not happen in its slot."""

Due: TypeAlias = Callable[[str, float], int]
"""Returns the new due time of a message, ms, from its id and its present due time."""


def calling(call: Callable[[QueueCommands, str], Command[str]]) -> Act:
    """Call a script for each message; its replies are the words."""

    def act(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
        return [unwrap(reply) for reply in (yield [call(scripts, message_id) for message_id in ids])]

    return act


cancelling: Final = calling(QueueCommands.cancel)
"""Cancel messages: "cancelled", "in_flight" or "unknown"."""

stopping: Final = calling(lambda scripts, message_id: scripts.cancel(message_id, running=True))
"""Cancel messages and stop those that run: "stopping", "cancelled", "in_flight" or "unknown"."""

burying: Final = calling(lambda scripts, message_id: scripts.bury(message_id, BURIED))
"""Move waiting messages to the dead letters: "buried", "in_flight", "dead" or "unknown"."""


def rescheduling(due: Raw) -> Act:
    """Give waiting messages a new due time: "rescheduled", "in_flight", "dead" or "unknown"."""
    return calling(lambda scripts, message_id: scripts.reschedule(message_id, due))


def retiming(due: Due, now_ms: float = 0.0) -> Act:
    """Give each waiting message its own due time; the words are those of `rescheduling`.

    Args:
        now_ms: used as the due time of a message that has none, because it is held.
    """

    def act(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
        keys = [scripts.keys.state(state) for state in DELIVERABLE]
        asked = [Command(key, ("ZSCORE", key, encode_id(each)), _score) for each in ids for key in keys]
        scores = [unwrap(reply) for reply in (yield asked)]
        found = [
            next((at for at in scores[n : n + len(keys)] if at is not None), now_ms)
            for n in range(0, len(scores), len(keys))
        ]
        commands = [scripts.reschedule(each, due(each, at)) for each, at in zip(ids, found, strict=True)]
        return [unwrap(reply) for reply in (yield commands)]

    return act


def shifted(by_ms: int) -> Due:
    """Return a function that moves due times by `by_ms`."""
    return lambda _, at: _bounded(int(at) + by_ms)


def spread(start_ms: int, over_ms: int) -> Due:
    """Return a function that spreads due times over `over_ms` from a start; a message always gets the same one."""
    return lambda message_id, _: _bounded(
        start_ms + zlib.crc32(message_id.encode(errors="surrogateescape")) * over_ms // 2**32
    )


def _bounded(due_ms: int) -> int:
    return min(max(due_ms, 1), MAX_TIME_MS)


def _score(reply: bytes | None) -> float | None:
    return None if reply is None else float(reply)


def requeueing(due: Raw) -> Act:
    """Requeue dead letters: "requeued", or "left" if a message is not dead or its payload is gone."""

    def act(scripts: QueueCommands, ids: Sequence[str]) -> Operation[list[str]]:
        moved = yield from execute(scripts.requeue(ids, due))
        return ["requeued" if each else "left" for each in moved]

    return act


class Prepared(NamedTuple):
    """An action with its settings.

    Attributes:
        act: acts on messages.
        due, backwards: as a `Sweep` takes them.
    """

    act: Act
    due: int | Due | None = None
    backwards: bool = False


def _now(_: How, now: dt.datetime) -> Prepared:
    return Prepared(rescheduling(timestamp_ms(now)), timestamp_ms(now))


def _reschedule(how: How, now: dt.datetime) -> Prepared:
    if how.shift is not None:
        by_ms = milliseconds(abs(how.shift), "shift")
        shift = shifted(by_ms if how.shift > 0 else -by_ms)
        return Prepared(retiming(shift, timestamp_ms(now)), None, how.shift > 0)
    assert how.due is not None
    at = how.due if isinstance(how.due, dt.datetime) else now + dt.timedelta(seconds=how.due)
    start_ms = timestamp_ms(at)
    if not how.spread:
        return Prepared(rescheduling(start_ms), start_ms)
    due = spread(start_ms, milliseconds(how.spread, "spread"))
    return Prepared(retiming(due), due, True)  # else it meets what it moved to later


PREPARE: dict[str, Callable[[How, dt.datetime], Prepared]] = {
    "now": _now,
    "reschedule": _reschedule,
    "requeue": lambda how, _: Prepared(requeueing(due_word(how.delay, None))),
    "bury": lambda *_: Prepared(burying),
    "cancel": lambda *_: Prepared(cancelling),
    "stop": lambda *_: Prepared(stopping),
}
"""How each action of `delayq.model.actions` that takes ids does its work, with its settings and the server's time."""


def now(context: QueueContext, ids: str | Iterable[str]) -> Operation[dict[str, str]]:
    """Make waiting messages due now; the words are those of `rescheduling`."""
    return (yield from each(context, rescheduling(due_word(None, None)), checked_ids(ids)))


def each(context: QueueContext, act: Act, ids: Sequence[str]) -> Operation[dict[str, str]]:
    """Apply `act` to these messages; return the word for each."""
    yield from context.opened()
    unique = list(dict.fromkeys(ids))
    outcomes = dict.fromkeys(unique, "")
    for scripts, positions in context.by_shard(range(len(unique)), unique.__getitem__):
        for start in range(0, len(positions), MAX_MOVED):
            some = [unique[position] for position in positions[start : start + MAX_MOVED]]
            words = dict(zip(some, (yield from act(scripts, some)), strict=True))
            yield from schedule_chain.go_on(context, [one for one in some if words[one] in _TAKEN_FROM_SCHEDULES])
            outcomes |= words
    return outcomes
