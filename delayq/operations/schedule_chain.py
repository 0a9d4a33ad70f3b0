"""The chain of a schedule: from an occurrence that is handed out to the next one, and back to a chain that broke."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.errors import DelayqError, UnreadableEnvelope
from delayq.log import log
from delayq.model.envelope import Envelope, parse
from delayq.model.occurrence import HOME, Occurrence, occurrence_id, plan_of, with_slot
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import QueueCommands

PAGE = 100
MAX_COUNTED = 100  # skipped slots, for the log


def next_of(
    context: QueueContext, occurrence: Occurrence, envelope: Envelope, now_ms: int, is_skipped: bool
) -> Command[int] | None:
    """Return the call that lets the next occurrence follow one that was handed out at `now_ms`."""
    name, slot, plan = occurrence.name, occurrence.slot_ms, occurrence.plan
    following = plan.following(slot, now_ms)
    said = log.bind(queue=context.name, schedule=name)
    if following is None:
        said.error("schedule has no further slot")
        return None
    if is_skipped:
        count, each = 0, slot
        while count < MAX_COUNTED and (found := plan.recurrence.after(each)) is not None and found < following:
            count, each = count + 1, found
        said.warning("slot skipped: it came later than its grace", late=(now_ms - slot) / 1000, others=count)
    new_id = occurrence_id(name, following, len(context.shards))
    return home(context).enqueue_occurrence(name, slot, "", b"", following, new_id, with_slot(envelope, following))


def home(context: QueueContext) -> QueueCommands:
    """Return the shard on which the schedules live."""
    return context.shards[HOME]


def note(context: QueueContext, occurrences: Sequence[Occurrence], replies: Sequence[object]) -> None:
    """Tell what kept the next occurrences from being sent: a consumer revives the schedule within a minute."""
    for each, reply in zip(occurrences, replies, strict=True):
        if isinstance(reply, DelayqError):
            log.error("schedule is not armed", queue=context.name, schedule=each.name, error=str(reply))


def revive(context: QueueContext) -> Operation[int]:
    """Arm schedules whose occurrence is gone: cancelled, purged, lost with its payload; return how many.

    A call looks at a page of them. `QueueContext.next_armed` is where the next call begins, 0 after the last page. What
    is gone stays so; it is the next slot that is armed. One that cannot be keeps none of the others from it.

    Raises:
        DelayqError: the first that kept a schedule from being armed.
    """
    scripts = home(context)
    start, context.next_armed = context.next_armed, 0
    counts, page = yield [scripts.stats(), scripts.armed_page(PAGE, start)]
    now, rows = unwrap(counts).now_ms, unwrap(page)
    if rows is None:
        return 0
    lost = yield from gone(context, {name: slot for name, slot in rows if slot <= now})
    revived, errors = 0, []
    for name, reply in (yield from _arm_next(context, lost, now)).items():
        line = log.bind(queue=context.name, schedule=name)
        if isinstance(reply, DelayqError):
            errors.append(reply)
            line.error("schedule is not armed", error=str(reply))
        elif reply:  # else somebody else has been quicker
            revived += 1
            line.warning("schedule revived: its occurrence is gone", slot_ms=lost[name])
    if all(slot <= now for _, slot in rows):
        context.next_armed = start + PAGE - revived  # what was revived stands further behind now
    if errors:
        raise errors[0]
    return revived


def _arm_next(context: QueueContext, lost: dict[str, int], now_ms: int) -> Operation[dict[str, int | DelayqError]]:
    """Arm what follows the slots that were lost; return the replies, of the schedules that can be read."""
    if not lost:
        return {}
    key = home(context).keys.schedules
    records = yield [Command(key, ("HGET", key, name), identity) for name in lost]
    calls = {}
    for (name, slot), record in zip(lost.items(), map(unwrap, records), strict=True):
        envelope = opened(record)
        plan = plan_of(envelope.headers or {}) if envelope else None
        if envelope and plan and (call := next_of(context, Occurrence(name, slot, plan), envelope, now_ms, False)):
            calls[name] = call
    replies = (yield list(calls.values())) if calls else []
    return dict(zip(calls, replies, strict=True))


def gone(context: QueueContext, slots: dict[str, int]) -> Operation[dict[str, int]]:
    """Return those of the armed slots whose occurrence is not on its way."""
    if not slots:
        return {}
    scripts = home(context)
    ids = [occurrence_id(name, slot, len(context.shards)) for name, slot in slots.items()]
    keys = [scripts.keys.pending, scripts.keys.ready, scripts.keys.unack, scripts.keys.retry]
    there = [unwrap(reply) for reply in (yield [Command(key, ("ZMSCORE", key, *ids), list) for key in keys])]
    return {
        name: slot
        for (name, slot), *scores in zip(slots.items(), *there, strict=True)
        if all(score is None for score in scores)
    }


def opened(record: bytes | None) -> Envelope | None:
    """Return the envelope that a schedule's record holds; None when it cannot be read."""
    try:
        return parse(b"0" * 13 + (record or b""))[1]
    except UnreadableEnvelope:
        return None
