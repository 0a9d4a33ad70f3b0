"""Store, list and remove schedules. How a schedule continues by itself is in `schedule_chain`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

from msgspec.structs import replace

from delayq.errors import InvalidInput, ServerError, ServerOutOfMemory, UnreadableEnvelope
from delayq.log import log
from delayq.model.backoff import check_retries
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.envelope import Headers, encode, open_body
from delayq.model.message_ids import new_id
from delayq.model.occurrence import (
    FINISHED,
    PAUSED,
    Plan,
    occurrence_id,
    plan_of,
    seal_record,
    with_slot,
)
from delayq.model.result import header_of_results
from delayq.model.schedule import Schedule, Slot
from delayq.model.task_name import header_of, task_of
from delayq.model.text import decode_id, is_foreign_id
from delayq.model.units import MAX_TIME_MS, Seconds, from_ms, lease_ms, timestamp_ms
from delayq.model.validation import check_limit, check_schedule_name
from delayq.operations import configure, scan
from delayq.operations.encode import EncodedMessage
from delayq.operations.queue_context import QueueContext, time_call
from delayq.operations.schedule_chain import PAGE, TAKEN, Move, aside, home, opened
from delayq.operations.send import send_encoded
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import Operation, execute, unwrap

MOST_SLOTS = 100_000


class Prepared(NamedTuple):
    """A checked schedule.

    Attributes:
        follows: whether its retries are those of the queue.
    """

    name: str
    plan: Plan
    record: bytes
    follows: bool


class Stored(NamedTuple):
    """A schedule as Redis holds it, at one instant.

    Attributes:
        slot_ms: the armed slot, PAUSED or FINISHED; None if there is none, or if it is not a time.
        armed: the stored value of the armed slot; "" if there is none.
    """

    now_ms: int
    record: bytes | None
    slot_ms: int | None
    armed: str


def prepare(
    context: QueueContext,
    name: str,
    plan: Plan,
    payload: Any = None,
    max_retries: int | None = None,
    headers: Headers | None = None,
    timeout: Seconds | None = None,
    message: Outgoing | None = None,
) -> Prepared:
    """Check and encode a schedule; raises InvalidInput.

    Args:
        message: of each occurrence, instead of the payload and its options.
    """
    check_schedule_name(name)
    task = None
    if message is not None:
        _check_message(message, payload=payload, max_retries=max_retries, headers=headers, timeout=timeout)
        payload, max_retries, headers = message.payload, message.max_retries, message.headers
        timeout, task = message.timeout, header_of(message.task, message.payload)
        if message.results is not None:  # the ids of occurrences differ, and a random token would change the schedule
            task = {**(task or {}), **header_of_results(message.results, message.task, "schedule")}
    retries = context.max_retries if max_retries is None else check_retries(max_retries)
    timeout_ms = None if timeout is None else lease_ms(timeout, "timeout")
    record = seal_record(name, plan, payload, retries, headers, context.settings.max_payload, timeout_ms, task)
    return Prepared(name, plan, record, follows=max_retries is None)


def _check_message(message: object, **beside: Any) -> None:
    if not isinstance(message, Outgoing):
        raise InvalidInput(f"message={message!r} is not an Outgoing: give a task's message(…), or Outgoing(payload, …)")
    for option, value in beside.items():
        if value is not None:
            raise InvalidInput(f"{option}={value!r} and message= exclude each other: give it to the message")
    for option in ("delay", "at", "id", "expires_in", "unique_for"):
        if (value := getattr(message, option)) is not None:
            remedy = 'use missed="skip" and grace=' if option == "expires_in" else "leave it out"
            raise InvalidInput(f"the message of a schedule has {option}={value!r}, which its slots cannot: {remedy}")
    if message.on_conflict != "ignore":
        raise InvalidInput(f"the message of a schedule has on_conflict={message.on_conflict!r}: leave it out")


def check(context: QueueContext, /, name: str, plan: Plan, **sent: Any) -> Operation[tuple[Prepared, Schedule | None]]:
    """Check a schedule with the stored settings of the queue; return it prepared for `add`, and described."""
    yield from context.opened()
    prepared = prepare(context, name, plan, **sent)
    return prepared, describe(context, name, prepared.record, None)


def add(context: QueueContext, prepared: Prepared) -> Operation[Schedule]:
    """Store a new or changed schedule and arm its next slot; an identical one is left unchanged."""
    yield from context.opened(create=True)
    yield from configure.declare(context)
    name, plan, record, follows = prepared
    envelope = opened(record)
    if follows and envelope is not None:  # the queue was not open yet when this was prepared
        record = encode(replace(envelope, max_retries=context.max_retries))

    def next_slot(stored: Stored) -> int | None:
        if stored.slot_ms == PAUSED:
            return PAUSED
        known = opened(stored.record)
        if follows and known is not None:  # other retries of the queue do not change the schedule: its slot stays
            known = replace(known, max_retries=context.max_retries)
        if known is not None and known == opened(record) and stored.slot_ms not in (None, FINISHED):
            return stored.slot_ms
        slots, before = plan.slots(context.name, name), plan_of(known)
        if before is not None and plan.has_times_of(before):
            return slots.after(stored.now_ms) or FINISHED
        return slots.nominally_after(stored.now_ms) or FINISHED  # a slot that has run must not run again later

    while True:
        yield from _move(context, name, next_slot, record)
        found = yield from get(context, name)
        if found is not None:  # otherwise another program removed it meanwhile
            return found


def add_all(context: QueueContext, prepared: Iterable[Prepared]) -> Operation[list[Prepared]]:
    """Check that a queue can be served; store its client's limits, and the schedules that have functions here.

    Returns:
        the schedules for which the server has no memory, or whose shard is unavailable, to try again.
    """
    yield from context.opened(create=True)
    yield from configure.declare(context)
    refused = []
    for each in prepared:
        try:
            yield from add(context, each)
        except ServerError as error:  # the consumer must start anyway: it frees memory, or serves other shards
            if not (isinstance(error, ServerOutOfMemory) or context.outlives(error)):
                raise
            line = log.bind(queue=context.name, schedule=each.name)
            line.error("schedule not stored, retrying", error=str(error))
            refused.append(each)
    return refused


class DeclaredSchedules:
    """The schedules that have functions in this program, which a consumer keeps stored."""

    def __init__(self, context: QueueContext, declared: Iterable[Prepared]) -> None:
        self._context = context
        self._declared = list(declared)
        self._losses = context.losses
        self._unstored = self._declared  # later, those that could not be stored

    def store(self) -> Operation[None]:
        """Check that the queue can be served, and store those that are not stored."""
        self._unstored = yield from add_all(self._context, self._unstored)

    def restore(self) -> Operation[None]:
        """Store those that are not stored: all of them if the server has lost the queue's data."""
        if self._context.losses > self._losses:
            self._losses, self._unstored = self._context.losses, self._declared
        if self._unstored:
            yield from self.store()


def pause(context: QueueContext, name: str) -> Operation[bool]:
    """Cancel the waiting occurrence and arm none until `resume`; return whether there is such a schedule."""
    return (yield from _keep(context, name, lambda _: PAUSED))


def resume(context: QueueContext, name: str) -> Operation[bool]:
    """Arm the next slot from now on, if it is paused or none is armed; return whether there is such a schedule."""

    def next_slot(stored: Stored) -> int | None:
        if stored.slot_ms not in (None, PAUSED, FINISHED):
            return stored.slot_ms
        plan = plan_of(opened(stored.record))
        return None if plan is None else plan.slots(context.name, name).after(stored.now_ms)

    return (yield from _keep(context, name, next_slot))


def remove(context: QueueContext, name: str) -> Operation[bool]:
    """Remove a schedule and cancel its waiting occurrence; return whether there was one."""
    check_schedule_name(name)
    yield from context.opened()
    tried = False  # a call whose reply was lost may have removed it
    while True:
        stored = yield from _read(context, name)
        if stored.record is None and not stored.armed:
            return tried
        tried = True
        if (yield from _arm(context, name, stored, b"", "")):
            return True


def run_now(context: QueueContext, name: str) -> Operation[SentMessage]:
    """Send an extra occurrence, due at once, as ``name@run-…``; the slots stay the same. Raises InvalidInput."""
    check_schedule_name(name)
    yield from context.opened()
    envelope = opened((yield from _read(context, name)).record)
    if envelope is None:
        raise InvalidInput(f"schedule {name!r} is not in queue {context.name}: add it first")
    encoded = EncodedMessage(f"{name}@run-{new_id()}", "+0", with_slot(envelope, None), "ignore", False)
    (sent,) = yield from send_encoded(context, [encoded])
    return sent


def get(context: QueueContext, name: str) -> Operation[Schedule | None]:
    """Return a schedule; None if it does not exist."""
    check_schedule_name(name)
    yield from context.opened()
    stored = yield from _read(context, name)
    return describe(context, name, stored.record, stored.slot_ms)


def list_all(context: QueueContext) -> Operation[list[Schedule]]:
    """Return all schedules, by name."""
    found = yield from read_all(context)
    names = sorted(name for name in found if not is_foreign_id(name))
    schedules = (describe(context, name, found[name].record, found[name].slot_ms) for name in names)
    return [each for each in schedules if each is not None]


def count(context: QueueContext) -> Operation[int]:
    """Return how many schedules there are, including paused and finished ones, without reading them."""
    yield from context.opened()
    key = home(context).keys.armed
    return (yield from execute(Command(key, ("ZCARD", key), int)))


def read_all(context: QueueContext) -> Operation[dict[str, Stored]]:
    """Read all schedules by name, a page in a round trip; foreign ones, too."""
    yield from context.opened()
    keys = home(context).keys
    found: dict[str, Stored] = {}

    def look(items: dict[bytes, Any]) -> Operation[None]:
        now, scores = yield [time_call(context), Command(keys.armed, ("ZMSCORE", keys.armed, *items), list)]
        for (raw, record), score in zip(items.items(), unwrap(scores), strict=True):
            found[decode_id(raw)] = _stored(unwrap(now), record, score)

    yield from scan.structure("HSCAN", keys.schedules, look)
    return found


def unreadable(context: QueueContext) -> Operation[list[str]]:
    """Return the names of stored schedules that cannot be read: another program or a newer delayq wrote them."""
    found = yield from read_all(context)
    return sorted(name for name, each in found.items() if describe(context, name, each.record, None) is None)


def upcoming(context: QueueContext, count: int, name: str | None) -> Operation[list[Slot]]:
    """Return the next `count` slots of one schedule or of all, earliest first."""
    check_limit(count, "n", most=MOST_SLOTS)
    if name is not None:
        return (yield from _upcoming_of(context, count, name))
    yield from context.opened()
    now = yield from execute(time_call(context))
    return (yield from _slots(context, count, now, [], 0))


def _upcoming_of(context: QueueContext, count: int, name: str) -> Operation[list[Slot]]:
    check_schedule_name(name)
    yield from context.opened()
    stored = yield from _read(context, name)
    found = describe(context, name, stored.record, stored.slot_ms)
    if found is None:
        raise InvalidInput(f"schedule {name!r} is not in queue {context.name}: add it first")
    return (yield from _slots(context, count, stored.now_ms, _armed([found]), None))


_Armed: TypeAlias = tuple[int, str, Plan]  # the next slot, ms, of a schedule


def _armed(schedules: Iterable[Schedule]) -> list[_Armed]:
    return [(timestamp_ms(each.next_at), each.name, each.plan) for each in schedules if each.next_at is not None]


def _slots(context: QueueContext, count: int, now: int, heap: list[_Armed], start: int | None) -> Operation[list[Slot]]:
    """Return the next slots of the schedules in a heap, and of those stored from `start` on, read as needed."""
    slots: list[Slot] = []
    known: set[str] = set()
    upto = 0, ""
    while len(slots) < count:
        while start is not None and not (heap and heap[0][:2] <= upto):
            rows, schedules = yield from _page(context, start)
            for each in _armed(schedules):
                if each[1] not in known:  # otherwise its place has changed since the page before
                    heapq.heappush(heap, each)
                    known.add(each[1])
            upto = (rows[-1][1], rows[-1][0]) if rows else upto
            start = None if rows is None else start + PAGE
        if not heap:
            break
        slot, of, plan = heapq.heappop(heap)
        if not plan.skips(slot, now):
            slots.append(Slot(of, from_ms(slot)))
        following = plan.following(plan.slots(context.name, of), slot, now)
        if following is not None:
            heapq.heappush(heap, (following, of, plan))
    return slots


def _page(context: QueueContext, start: int) -> Operation[tuple[list[tuple[str, int]] | None, list[Schedule]]]:
    """Return a page of names and armed slots, earliest first, None at the end; and those that can be read."""
    rows = yield from execute(home(context).armed_page(PAGE, start))
    if not rows:
        return rows, []
    key = home(context).keys.schedules
    records = yield from execute(Command(key, ("HMGET", key, *(name for name, _ in rows)), list))
    found = (describe(context, name, record, slot) for (name, slot), record in zip(rows, records, strict=True))
    return rows, [each for each in found if each is not None]


def _keep(context: QueueContext, name: str, next_slot: Callable[[Stored], int | None]) -> Operation[bool]:
    check_schedule_name(name)
    yield from context.opened()
    return (yield from _move(context, name, next_slot))


def _move(
    context: QueueContext, name: str, next_slot: Callable[[Stored], int | None], record: bytes = b""
) -> Operation[bool]:
    """Arm the slot that `next_slot` returns, and repeat if another client was faster; False if there is no schedule."""
    while True:
        stored = yield from _read(context, name)
        if not record and stored.record is None:
            return False
        slot = next_slot(stored)
        if slot is None:
            raise InvalidInput(f"schedule {name!r} has no further slots: add it with a later end or another expression")
        unchanged = slot == stored.slot_ms and record in (b"", stored.record)
        if unchanged or (yield from _arm(context, name, stored, record, slot)):
            return True


def _arm(context: QueueContext, name: str, stored: Stored, record: bytes, slot: int | str) -> Operation[int]:
    withdrawn = ""
    if stored.slot_ms is not None and stored.slot_ms > PAUSED:
        withdrawn = occurrence_id(name, stored.slot_ms, len(context.shards))
    move = Move(name, stored.armed, slot, opened(record or stored.record), withdrawn, record)
    reply = yield from execute(move.call(context))
    return (yield from aside(context, move)) if reply == TAKEN else reply


def _read(context: QueueContext, name: str) -> Operation[Stored]:
    keys = home(context).keys
    now, record, slot = yield [
        time_call(context),
        Command(keys.schedules, ("HGET", keys.schedules, name), identity),
        Command(keys.armed, ("ZSCORE", keys.armed, name), identity),
    ]
    return _stored(unwrap(now), unwrap(record), unwrap(slot))


def _stored(now_ms: int, record: bytes | None, score: float | bytes | None) -> Stored:
    armed = f"{score:.17g}" if isinstance(score, float) else (score or b"").decode()  # a float: RESP3
    return Stored(now_ms, record, int(armed) if _is_slot(armed) else None, armed)


def _is_slot(armed: str) -> bool:
    """Whether a score is one that delayq writes; another program may have put anything there."""
    return armed == str(FINISHED) or (armed.isdecimal() and int(armed) <= MAX_TIME_MS)


def describe(context: QueueContext, name: str, record: bytes | None, slot: int | None) -> Schedule | None:
    """Make a Schedule from its stored form; None if it cannot be read."""
    envelope = opened(record)
    plan = plan_of(envelope)
    if envelope is None or plan is None:
        return None
    try:
        payload = open_body(envelope)
    except UnreadableEnvelope:
        return None
    armed = slot if slot is not None and slot > PAUSED else None
    return Schedule(
        name=name,
        queue=context.name,
        when=plan.when,
        timezone=plan.timezone,
        missed=plan.missed,
        grace=None if plan.grace_ms is None else plan.grace_ms / 1000,
        own=plan.own,
        start=None if plan.start_ms is None else from_ms(plan.start_ms),
        end=None if plan.end_ms is None else from_ms(plan.end_ms),
        jitter=plan.jitter_ms / 1000,
        paused=slot == PAUSED,
        finished=slot == FINISHED,
        next_at=None if armed is None else from_ms(armed),
        next_id=None if armed is None else occurrence_id(name, armed, len(context.shards)),
        payload=payload,
        headers=envelope.sent_headers,
        max_retries=envelope.max_retries,
        timeout=envelope.timeout,
        task=task_of(envelope.headers),
    )
