"""The chain of a schedule: an occurrence that is handed out sends the next one; broken chains are repaired."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from delayq.errors import DelayqError, UnreadableEnvelope
from delayq.log import log
from delayq.model.delivery import Delivery
from delayq.model.envelope import Envelope, parse
from delayq.model.occurrence import (
    FINISHED,
    HOME,
    Occurrence,
    occurrence,
    occurrence_id,
    plan_of,
    slot_of,
    with_slot,
)
from delayq.model.outcome import error_text
from delayq.model.slots import Slots
from delayq.operations.fetch import fetch
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import QueueCommands

PAGE = 100
NEAR_MS = 60_000  # a schedule whose slot is this near is left alone
MAX_COUNTED = 100  # skipped slots that are counted at once


class Following(NamedTuple):
    """What follows an occurrence that was handed out.

    Attributes:
        message_id, schedule: of the occurrence.
        call: arms the next one.
        is_skipped: whether this one is too late to be handled.
    """

    message_id: str
    schedule: str
    call: Command[int]
    is_skipped: bool


def following(context: QueueContext, handed: Sequence[tuple[Delivery[Any], Occurrence]]) -> Operation[list[Following]]:
    """Return what follows occurrences that were handed out, by their stored schedules.

    A message whose plan is not that of the stored schedule moves nothing: the schedule was removed or changed since, or
    another program has written the message.
    """
    key = home(context).keys.schedules
    names = dict.fromkeys(of.name for _, of in handed)
    replies = yield [Command(key, ("HGET", key, name), identity) for name in names]
    records = dict(zip(names, replies, strict=True))
    found = []
    for message, of in handed:
        record, line = records[of.name], log.bind(queue=context.name, schedule=of.name)
        if isinstance(record, Exception):
            line.error("schedule not armed", error=str(record))
            continue
        envelope = opened(record)
        plan = plan_of(envelope)
        if envelope is not None and plan is None:
            line.error("schedule unreadable", remedy="install its time zone on this machine")
        if envelope is None or plan != of.plan:
            continue
        now_ms = int(message.handed_ms)
        is_skipped = message.attempt == 1 and of.plan.skips(of.slot_ms, now_ms)  # a retry began in time
        call = _guarded(context, of, partial(next_of, context, of, envelope, now_ms, is_skipped))
        if call is not None:
            found.append(Following(message.id, of.name, call, is_skipped))
    return found


def _guarded(context: QueueContext, of: Occurrence, make: Callable[[], Command[int] | None]) -> Command[int] | None:
    """Return the call that arms a schedule; log why there is none if its plan, as stored, breaks the calculation."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # another program may have stored any plan; other schedules continue
        log.error("schedule not armed", queue=context.name, schedule=of.name, error=error_text(error), exc_info=error)
        return None


def next_of(
    context: QueueContext, handed: Occurrence, envelope: Envelope, now_ms: int, is_skipped: bool
) -> Command[int]:
    """Return the call that arms the occurrence after one handed out at `now_ms`, or finishes the schedule."""
    name, slot, plan = handed.name, handed.slot_ms, handed.plan
    slots = plan.slots(context.name, name)
    following = plan.following(slots, slot, now_ms)
    said = log.bind(queue=context.name, schedule=name)
    passed_over = 0 if plan.missed == "all" else _between(slots, slot, following or now_ms)
    missed = passed_over + is_skipped
    if is_skipped:
        said.warning("slot skipped", late=(now_ms - slot) / 1000, others=passed_over)
    if following is None:
        said.info("schedule finished")
        return home(context).enqueue_occurrence(name, slot, "", b"", FINISHED, missed=missed)
    new_id = occurrence_id(name, following, len(context.shards))
    sealed = with_slot(envelope, following)
    return home(context).enqueue_occurrence(name, slot, "", b"", following, new_id, sealed, missed)


def _between(slots: Slots, first: int, last: int) -> int:
    """Count the slots between two times, up to MAX_COUNTED."""
    count, each = 0, slots.after(first)
    while count < MAX_COUNTED and each is not None and each < last:
        count, each = count + 1, slots.after(each)
    return count


def home(context: QueueContext) -> QueueCommands:
    """Return the shard that holds the schedules."""
    return context.shards[HOME]


def note(context: QueueContext, handed: Sequence[Following], replies: Sequence[object]) -> None:
    """Log why next occurrences were not sent; a consumer revives their schedules within a minute.

    Args:
        replies: the first are those of the calls that arm them.
    """
    for each, reply in zip(handed, replies, strict=False):
        if isinstance(reply, DelayqError):
            log.error("schedule not armed", queue=context.name, schedule=each.schedule, error=str(reply))


def revive(context: QueueContext) -> Operation[int]:
    """Arm schedules whose occurrence is gone: cancelled, purged, or lost with its payload; return how many.

    A call checks one page of them. `QueueContext.next_armed` is where the next call begins, 0 after the last page. The
    lost occurrence is not restored; the next slot is armed. A schedule that cannot be armed does not stop the others.

    Raises:
        DelayqError: the first error that kept a schedule from being armed.
    """
    scripts = home(context)
    start, context.next_armed = context.next_armed, 0
    counts, page = yield [scripts.stats(), scripts.armed_page(PAGE, start)]
    now, rows = unwrap(counts).now_ms, unwrap(page)
    if rows is None:
        return 0
    lost = yield from gone(context, {name: slot for name, slot in rows if slot <= now})
    arm = partial(_next_of_lost, context, now)
    revived, errors = yield from _arm(context, lost, arm, "schedule revived")
    if all(slot <= now for _, slot in rows):
        context.next_armed = start + PAGE - revived  # revived schedules have moved further back
    if errors:
        raise errors[0]
    return revived


def bring_back(context: QueueContext) -> Operation[int]:
    """Rearm schedules that wait for a slot too far ahead, as the server's clock was set back; return how many.

    A call checks one page of them, and `QueueContext.next_ahead` is where the next call begins.

    Raises:
        DelayqError: the first error that kept a schedule from being armed.
    """
    scripts = home(context)
    start, context.next_ahead = context.next_ahead, 0
    counts, page = yield [scripts.stats(), scripts.armed_page(PAGE, start)]
    now, rows = unwrap(counts).now_ms, unwrap(page)
    if rows is None:
        return (yield from bring_back(context)) if start else 0
    context.next_ahead = start + PAGE
    ahead = yield from _of_the_future(context, {name: slot for name, slot in rows if slot > now + NEAR_MS}, now)
    arm = partial(_nearest, context, now)
    brought, errors = yield from _arm(context, ahead, arm, "schedule moved back")
    if errors:
        raise errors[0]
    return brought


def _of_the_future(context: QueueContext, slots: dict[str, int], now_ms: int) -> Operation[dict[str, int]]:
    """Return the armed slots whose occurrence was stored later than now, so that the clock was set back since."""
    if not slots:
        return {}
    ids = [occurrence_id(name, slot, len(context.shards)) for name, slot in slots.items()]
    found: dict[str, int] = {}
    left = list(zip(ids, slots.items(), strict=True))
    while left:
        envelopes = yield from fetch(home(context), [each for each, _ in left])
        stored = zip(left, envelopes, strict=False)
        found.update(armed for (_, armed), each in stored if each is not None and _is_stored_after(now_ms, each))
        left = left[len(envelopes) :]
    return found


def _is_stored_after(now_ms: int, envelope: bytes) -> bool:
    try:
        return parse(envelope)[0] > now_ms
    except UnreadableEnvelope:
        return False


def _next_of_lost(context: QueueContext, now_ms: int, lost: Occurrence, envelope: Envelope) -> Command[int]:
    return next_of(context, lost, envelope, now_ms, False)


def _nearest(context: QueueContext, now_ms: int, armed: Occurrence, envelope: Envelope) -> Command[int] | None:
    """Return the call that arms the next slot from now instead of one more than a period later."""
    after, shards = armed.plan.slots(context.name, armed.name).after, len(context.shards)
    slot = after(now_ms)
    if slot is None or armed.slot_ms <= slot or armed.slot_ms <= (after(slot) or armed.slot_ms):
        return None
    withdrawn, new_id = (occurrence_id(armed.name, each, shards) for each in (armed.slot_ms, slot))
    return home(context).enqueue_occurrence(
        armed.name, armed.slot_ms, withdrawn, b"", slot, new_id, with_slot(envelope, slot)
    )


def _arm(
    context: QueueContext,
    slots: dict[str, int],
    arm: Callable[[Occurrence, Envelope], Command[int] | None],
    event: str = "",
) -> Operation[tuple[int, list[DelayqError]]]:
    """Arm other slots than these with `arm`; return how many were armed, and the errors of the others.

    Args:
        slots: the armed slots, by the names of their schedules.
        event: the log event for each slot that was armed; None for no log.
    """
    if not slots:
        return 0, []
    key = home(context).keys.schedules
    records = yield [Command(key, ("HGET", key, name), identity) for name in slots]
    calls = {}
    for (name, slot), record in zip(slots.items(), map(unwrap, records), strict=True):
        envelope = opened(record)
        plan = plan_of(envelope)
        if envelope is None or plan is None:
            continue
        of = Occurrence(name, slot, plan)
        if call := _guarded(context, of, partial(arm, of, envelope)):
            calls[name] = call
    count, errors = 0, []
    for name, reply in zip(calls, (yield list(calls.values())) if calls else [], strict=True):
        line = log.bind(queue=context.name, schedule=name)
        if isinstance(reply, DelayqError):
            errors.append(reply)
            line.error("schedule not armed", error=str(reply))
        elif reply:  # otherwise another client was faster
            count += 1
            if event:
                line.warning(event, slot_ms=slots[name])
    return count, errors


def go_on(context: QueueContext, message_id: str) -> Operation[None]:
    """Arm the slot after one whose occurrence was cancelled or buried, so that only that slot is left out.

    If this fails, a consumer does it within a minute, in `revive`, as it does after a purge.
    """
    found = slot_of(message_id, len(context.shards))
    if found is None:
        return
    (name, slot), key = found, home(context).keys.armed
    try:
        (armed,) = yield from execute(Command(key, ("ZMSCORE", key, name), list))
        if armed is None or float(armed) != slot:
            return
        now = yield from server_ms(context)
        # Changes nothing if another slot was armed meanwhile.
        yield from _arm(context, {name: slot}, partial(_next_of_lost, context, now))
    except DelayqError as error:  # the message stays cancelled
        log.warning("schedule not armed", queue=context.name, schedule=name, error=str(error))


def gone(context: QueueContext, slots: dict[str, int]) -> Operation[dict[str, int]]:
    """Return the armed slots whose occurrence does not exist, or whose id belongs to another message."""
    if not slots:
        return {}
    scripts = home(context)
    ids = [occurrence_id(name, slot, len(context.shards)) for name, slot in slots.items()]
    keys = [scripts.keys.pending, scripts.keys.ready, scripts.keys.unack, scripts.keys.retry]
    found = [unwrap(reply) for reply in (yield [Command(key, ("ZMSCORE", key, *ids), list) for key in keys])]
    there = {each for each, *scores in zip(ids, *found, strict=True) if scores != [None] * len(keys)}
    others = set[str]()
    left = sorted(there)
    while left:
        envelopes = yield from fetch(scripts, left)
        stored = zip(left, envelopes, strict=False)
        others |= {each for each, envelope in stored if envelope and not _is_occurrence(each, envelope)}
        left = left[len(envelopes) :]
    return {
        name: slot for (name, slot), each in zip(slots.items(), ids, strict=True) if each not in there or each in others
    }


def _is_occurrence(message_id: str, stored: bytes) -> bool:
    try:
        return occurrence(message_id, parse(stored)[1].headers) is not None
    except UnreadableEnvelope:
        return True  # the consumer that takes it makes it a dead letter


def opened(record: bytes | None) -> Envelope | None:
    """Return the envelope in a schedule's record; None if it cannot be read."""
    try:
        return parse(b"0" * 13 + (record or b""))[1]
    except UnreadableEnvelope:
        return None
