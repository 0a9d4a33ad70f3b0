"""The chain of a schedule: an occurrence that is handed out sends the next one; broken chains are repaired."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, NamedTuple

from delayq.errors import DelayqError, UnreadableEnvelope
from delayq.log import log
from delayq.model.delivery import Delivery
from delayq.model.envelope import Envelope, parse
from delayq.model.occurrence import (
    FINISHED,
    HOME,
    PAUSED,
    Occurrence,
    occurrence,
    occurrence_id,
    plan_of,
    slot_of,
    with_slot,
)
from delayq.model.outcome import error_text
from delayq.model.slots import Slots
from delayq.model.text import is_foreign_id
from delayq.model.units import MAX_TIME_MS
from delayq.operations.fetch import fetch
from delayq.operations.queue_context import QueueContext, server_ms
from delayq.protocol.command import Command, Raw, identity
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.queue_commands import QueueCommands

PAGE = 100
NEAR_MS = 60_000  # a schedule whose slot is this near is left alone
MAX_COUNTED = 100  # skipped slots that are counted at once
TAKEN = 2  # the reply of `enqueue_occurrence` if another message has the id of the slot
ASIDE_MS = (2_000, 120_000, 7_200_000)  # a slot whose id is taken is later by up to half of this
MOST_SLOTS_TRIED = 100


class Move(NamedTuple):
    """A schedule's move to another slot.

    Attributes:
        armed: the slot that must be armed, or nothing is changed; "" for none.
        slot: the slot to arm, or PAUSED or FINISHED; "" to remove the schedule.
        envelope: of its occurrences; None if none is to be sent.
        withdrawn: the id of the occurrence to withdraw; "" for none.
        record: the schedule, to store; empty to keep the stored one.
        missed: skipped slots, to be counted.
    """

    name: str
    armed: Raw
    slot: Raw
    envelope: Envelope | None = None
    withdrawn: str = ""
    record: bytes = b""
    missed: int = 0

    def call(self, context: QueueContext) -> Command[int]:
        """Return the call that makes the move; its reply is 1, 0 if another slot is armed, or TAKEN."""
        to_id, envelope = "", b""
        if self.envelope is not None and isinstance(self.slot, int) and self.slot > PAUSED:
            to_id = occurrence_id(self.name, self.slot, len(context.shards))
            envelope = with_slot(self.envelope, self.slot)
        return home(context).enqueue_occurrence(
            self.name, self.armed, self.withdrawn, self.record, self.slot, to_id, envelope, self.missed
        )


class Following(NamedTuple):
    """What follows an occurrence that was handed out.

    Attributes:
        message_id, schedule: of the occurrence.
        move: arms the next one.
        is_skipped: whether this one is too late to be handled.
    """

    message_id: str
    schedule: str
    move: Move
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
        is_skipped = message.attempt == 1 and of.plan.skips(message.due_ms, now_ms)  # a retry began in time
        move = _guarded(context, of, partial(next_of, context, of, envelope, now_ms, is_skipped))
        if move is not None:
            if is_skipped:
                line.warning("slot skipped", late=(now_ms - message.due_ms) / 1000, others=move.missed - 1)
            found.append(Following(message.id, of.name, move, is_skipped))
    return found


def _guarded(context: QueueContext, of: Occurrence, make: Callable[[], Move | None]) -> Move | None:
    """Return the move that arms a schedule; log why there is none if its plan, as stored, breaks the calculation."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001  # another program may have stored any plan; other schedules continue
        log.error("schedule not armed", queue=context.name, schedule=of.name, error=error_text(error), exc_info=error)
        return None


def next_of(context: QueueContext, handed: Occurrence, envelope: Envelope, now_ms: int, is_skipped: bool) -> Move:
    """Return the move to the occurrence after one handed out at `now_ms`, or to the end of the schedule."""
    name, slot, plan = handed.name, handed.slot_ms, handed.plan
    slots = plan.slots(context.name, name)
    following = plan.following(slots, slot, now_ms)
    missed = is_skipped + (0 if plan.missed == "all" else _between(slots, slot, following or now_ms))
    if following is None:
        log.info("schedule finished", queue=context.name, schedule=name)
        return Move(name, slot, FINISHED, missed=missed)
    return Move(name, slot, following, envelope, missed=missed)


def aside(context: QueueContext, move: Move) -> Operation[int]:
    """Arm a slot whose id is TAKEN: a little later if another message has the id, as that must not be lost.

    If an occurrence has the id, the slot has run, or somebody has moved it: then the next slot is armed.

    Returns:
        1; or 0 if another client was faster.

    Raises:
        DelayqError: all ids that were tried belong to other messages.
    """
    plan, slot, shards = plan_of(move.envelope), move.slot, len(context.shards)
    assert plan is not None
    assert isinstance(slot, int)
    after = plan.slots(context.name, move.name).after
    for _ in range(MOST_SLOTS_TRIED):
        taken = slot
        try:
            following = after(slot)
        except Exception as error:  # as in _guarded
            raise DelayqError(f"the slots of schedule {move.name!r} cannot be computed: {error_text(error)}") from error
        for most in ASIDE_MS:
            message_id = occurrence_id(move.name, taken, shards)
            stored: list[bytes | None] = yield from execute(home(context).envelopes([message_id]))
            room = min(most, (following or MAX_TIME_MS) - slot) // 2
            if room < 1 or (stored[0] is not None and _is_occurrence(message_id, stored[0])):
                break
            taken = slot + random.randint(1, room)  # nobody can take all of these ids
            reply = yield from execute(move._replace(slot=taken).call(context))
            if reply != TAKEN:
                return reply
        slot = FINISHED if following is None else following
        reply = yield from execute(move._replace(slot=slot).call(context))
        if reply != TAKEN:
            return reply
    raise DelayqError(f"the ids of {MOST_SLOTS_TRIED} slots of schedule {move.name!r} are those of other messages")


def _between(slots: Slots, first: int, last: int) -> int:
    """Count the slots between two times, up to MAX_COUNTED."""
    count, each = 0, slots.after(first)
    while count < MAX_COUNTED and each is not None and each < last:
        count, each = count + 1, slots.after(each)
    return count


def home(context: QueueContext) -> QueueCommands:
    """Return the shard that holds the schedules."""
    return context.shards[HOME]


def note(context: QueueContext, handed: Sequence[Following], replies: Sequence[object]) -> Operation[None]:
    """Arm other slots for those whose ids are taken, and log why next occurrences were not sent.

    A consumer revives their schedules within a minute.

    Args:
        replies: the first are those of the calls that arm them.
    """
    for each, reply in zip(handed, replies, strict=False):
        try:
            if reply == TAKEN:
                yield from aside(context, each.move)
            unwrap(reply)
        except DelayqError as error:
            log.error("schedule not armed", queue=context.name, schedule=each.schedule, error=str(error))


def revive(context: QueueContext) -> Operation[int]:
    """Arm schedules whose occurrence is gone: cancelled, purged, moved, or lost with its payload; return how many.

    A call checks one page of them; `SweepState.armed` is where the next call begins, 0 after the last page. The
    lost occurrence is not restored; the next slot is armed. A schedule that cannot be armed does not stop the others.

    Raises:
        DelayqError: the first error that kept a schedule from being armed.
    """
    scripts = home(context)
    start, context.sweeps.armed = context.sweeps.armed, 0
    counts, page = yield [scripts.stats(), scripts.armed_page(PAGE, start)]
    now, rows = unwrap(counts).now_ms, unwrap(page)
    if rows is None:
        return 0
    lost = yield from gone(context, {name: slot for name, slot in rows if slot <= now}, now)
    arm = partial(_next_of_lost, context, now)
    revived, errors = yield from _arm(context, lost, arm, "schedule revived")
    if all(slot <= now for _, slot in rows):
        context.sweeps.armed = start + PAGE - revived  # revived schedules have moved further back
    if errors:
        raise errors[0]
    return revived


def bring_back(context: QueueContext) -> Operation[int]:
    """Rearm schedules that wait for a slot too far ahead, as the server's clock was set back; return how many.

    A call checks one page of them, and `SweepState.ahead` is where the next call begins.

    Raises:
        DelayqError: the first error that kept a schedule from being armed.
    """
    scripts = home(context)
    start, context.sweeps.ahead = context.sweeps.ahead, 0
    counts, page = yield [scripts.stats(), scripts.armed_page(PAGE, start)]
    now, rows = unwrap(counts).now_ms, unwrap(page)
    if rows is None:
        return (yield from bring_back(context)) if start else 0
    context.sweeps.ahead = start + PAGE
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


def _next_of_lost(context: QueueContext, now_ms: int, lost: Occurrence, envelope: Envelope) -> Move:
    return next_of(context, lost, envelope, now_ms, False)


def _nearest(context: QueueContext, now_ms: int, armed: Occurrence, envelope: Envelope) -> Move | None:
    """Return the move to the next slot from now instead of one more than a period later."""
    after, shards = armed.plan.slots(context.name, armed.name).after, len(context.shards)
    slot = after(now_ms)
    if slot is None or armed.slot_ms <= slot or armed.slot_ms <= (after(slot) or armed.slot_ms):
        return None
    return Move(armed.name, armed.slot_ms, slot, envelope, occurrence_id(armed.name, armed.slot_ms, shards))


def _arm(
    context: QueueContext,
    slots: dict[str, int],
    arm: Callable[[Occurrence, Envelope], Move | None],
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
    moves: dict[str, Move] = {}
    for (name, slot), record in zip(slots.items(), map(unwrap, records), strict=True):
        envelope = opened(record)
        plan = plan_of(envelope)
        if envelope is None or plan is None:
            continue
        of = Occurrence(name, slot, plan)
        if move := _guarded(context, of, partial(arm, of, envelope)):
            moves[name] = move
    count, errors = 0, []
    replies = (yield [move.call(context) for move in moves.values()]) if moves else []
    for (name, move), reply in zip(moves.items(), replies, strict=True):
        line = log.bind(queue=context.name, schedule=name)
        try:
            reply = (yield from aside(context, move)) if reply == TAKEN else unwrap(reply)  # noqa: PLW2901
        except DelayqError as error:
            errors.append(error)
            line.error("schedule not armed", error=str(error))
            continue
        if reply == 1:  # otherwise another client was faster
            count += 1
            if event:
                line.warning(event, slot_ms=slots[name])
    return count, errors


def go_on(context: QueueContext, message_ids: Collection[str]) -> Operation[None]:
    """Arm the slots after those whose occurrences were cancelled, buried, moved or replaced, so that no other is lost.

    If this fails, a consumer does it within a minute, in `revive`, as it does after a purge.
    """
    like_slots = [each for each in message_ids if "@" in each and not is_foreign_id(each)]
    slots = {found for each in like_slots if (found := slot_of(each, len(context.shards)))}
    if not slots:
        return
    names, key = sorted({name for name, _ in slots}), home(context).keys.armed
    try:
        scores = yield from execute(Command(key, ("ZMSCORE", key, *names), list))
        armed = {name: float(score) for name, score in zip(names, scores, strict=True) if score is not None}
        waited = {name: slot for name, slot in slots if armed.get(name) == slot}
        if waited:
            now = yield from server_ms(context)
            # Changes nothing if another slot was armed meanwhile.
            yield from _arm(context, waited, partial(_next_of_lost, context, now))
    except DelayqError as error:  # the message stays as it is
        for name in names:
            log.warning("schedule not armed", queue=context.name, schedule=name, error=str(error))


def gone(context: QueueContext, slots: dict[str, int], now_ms: int) -> Operation[dict[str, int]]:
    """Return the past armed slots that do not wait for a consumer.

    Their occurrence does not exist, has been moved to a later time, or has been running for some time, or its id
    belongs to another message.
    """
    if not slots:
        return {}
    scripts = home(context)
    ids = [occurrence_id(name, slot, len(context.shards)) for name, slot in slots.items()]
    keys = [scripts.keys.pending, scripts.keys.ready, scripts.keys.retry, scripts.keys.unack]
    found = [unwrap(reply) for reply in (yield [Command(key, ("ZMSCORE", key, *ids), list) for key in keys])]
    there = set()
    for each, slot, *waiting, running in zip(ids, slots.values(), *found, strict=True):
        begins = running is not None and slot > now_ms - NEAR_MS  # its consumer may be about to arm the next
        if begins or any(due is not None and float(due) <= now_ms for due in waiting):
            there.add(each)
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
