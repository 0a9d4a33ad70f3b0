"""The plan of a schedule, and the occurrences that carry it in their headers."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

from delayq.errors import InvalidInput, InvalidName, UnreadableEnvelope
from delayq.model.cron_expression import MAX_CHARS, MAX_INTERVAL_S, recurrence
from delayq.model.envelope import Envelope, Headers, decode_json, encode, encode_envelope, exact
from delayq.model.placement import shard_of
from delayq.model.slots import Slots
from delayq.model.time_zones import check_zone
from delayq.model.units import MAX_TIME_MS, Seconds, from_ms, milliseconds, timestamp_ms
from delayq.model.validation import check_schedule_name

Text = Annotated[str, msgspec.Meta(max_length=MAX_CHARS)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
Missed = Literal["once", "skip", "all"]

NAME, SLOT, PLAN = "delayq-schedule", "delayq-slot", "delayq-plan"  # headers of an occurrence
DEFAULT_GRACE = 60
PAUSED, FINISHED = 0, -1  # stored in place of the armed slot
HOME = 0  # the shard that holds the schedules of a queue


class Plan(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a schedule fires.

    Attributes:
        when: the expression.
        timezone: the time zone of the expression.
        missed: what to do with slots for which no consumer was running: "once" runs one of them late and continues with
            the next slot, "skip" drops those later than the grace, "all" runs each in order.
        grace_ms: the grace of "skip".
        own: whether its occurrences are only for the handler registered under its name.
        start_ms: no slot is earlier.
        end_ms: no slot is later.
        jitter_ms: each slot comes later than the expression says, by less than this.
    """

    when: Text
    timezone: Text = "UTC"
    missed: Missed = "once"
    grace_ms: Milliseconds | None = None
    own: bool = False
    start_ms: Milliseconds | None = None
    end_ms: Milliseconds | None = None
    jitter_ms: Annotated[int, msgspec.Meta(ge=0, le=MAX_INTERVAL_S * 1000)] = 0

    def slots(self, queue: str, name: str) -> Slots:
        """Return the slots of the schedule with this name."""
        nominal = recurrence(self.when, self.timezone)
        return Slots(nominal, self.start_ms, self.end_ms, self.jitter_ms, f"{queue}/{name}")

    def has_times_of(self, other: Plan) -> bool:
        """Whether the other plan has the same slots, apart from its start and end."""
        return (self.when, self.timezone, self.jitter_ms) == (other.when, other.timezone, other.jitter_ms)

    def following(self, slots: Slots, slot_ms: int, now_ms: int) -> int | None:
        """Return the slot to arm when the one at `slot_ms` is handed out at `now_ms`; None if it was the last."""
        last_missed = {"once": now_ms, "skip": now_ms - (self.grace_ms or 0) - 1, "all": slot_ms}[self.missed]
        return slots.after(max(slot_ms, last_missed))

    def skips(self, slot_ms: int, now_ms: int) -> bool:
        """Whether a slot is too late to run."""
        return self.missed == "skip" and now_ms - slot_ms > (self.grace_ms or 0)


class Occurrence(msgspec.Struct, frozen=True):
    """What the headers of a schedule's message say.

    Attributes:
        slot_ms: 0 if `run_now` sent it.
        plan: of the schedule when the message was sent; its expression and time zone may be unknown here.
    """

    name: str
    slot_ms: int
    plan: Plan


class MayOccur:
    """What a message says about its schedule, as far as its own headers and its id are as delayq makes them."""

    __slots__ = ()

    @property
    def occurrence(self) -> Occurrence | None:
        """The slot of a schedule that it was sent for; None for any other message."""
        raise NotImplementedError

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that it is an occurrence of; None for any other message."""
        found = self.occurrence
        return None if found is None else found.name

    @property
    def slot(self) -> dt.datetime | None:
        """The time in its schedule, in UTC; None if it is not an occurrence, or one that `run_now` sent."""
        found = self.occurrence
        return from_ms(found.slot_ms) if found is not None and found.slot_ms else None


_encode = msgspec.json.Encoder(enc_hook=exact).encode
_decode = msgspec.json.Decoder(Plan).decode


def make_plan(
    when: str,
    timezone: str,
    missed: Missed,
    grace: Seconds | None,
    start: dt.datetime | None,
    end: dt.datetime | None,
    jitter: Seconds,
    own: bool,
) -> Plan:
    """Make a plan from checked arguments; raises InvalidInput."""
    for what, value in (("schedule", when), ("timezone", timezone)):
        if not isinstance(value, str):
            raise InvalidInput(f"{what} {value!r} is not a string: write it as '*/5 * * * *' or 'Europe/Berlin'")
    check_zone(timezone)
    recurrence(when, timezone)
    if missed not in get_args(Missed):
        raise InvalidInput(f"unknown missed {missed!r}; expected one of {', '.join(get_args(Missed))}")
    if grace is not None and missed != "skip":
        raise InvalidInput(f"grace={grace!r} has no effect with missed={missed!r}: leave it out or use missed='skip'")
    if missed == "skip":
        grace = DEFAULT_GRACE if grace is None else grace
    grace_ms = None if grace is None else milliseconds(grace, "grace")
    start_ms = None if start is None else timestamp_ms(start, "start")
    end_ms = None if end is None else timestamp_ms(end, "end")
    jitter_ms = milliseconds(jitter, "jitter")
    if jitter_ms > MAX_INTERVAL_S * 1000:
        raise InvalidInput(f"jitter={jitter!r} is longer than 366 days: give a shorter one")
    plan = Plan(when.strip(), timezone, missed, grace_ms, own, start_ms, end_ms, jitter_ms)
    if plan.slots("", "").after(0) is None:
        since = "" if start is None else f" from start={start.isoformat()}"
        until = "" if end is None else f" until end={end.isoformat()}"
        raise InvalidInput(f"schedule {when!r} never fires{since}{until}: give a later end or another expression")
    return plan


def seal_record(
    name: str,
    plan: Plan,
    payload: Any,
    max_retries: int,
    headers: Headers | None,
    limit: int,
    timeout_ms: int | None,
    task: Mapping[str, str] | None,
) -> bytes:
    """Return a schedule as it is stored: the envelope of its occurrences, without a slot.

    Args:
        task: the header that names a task, or None.
    """
    own = {**(task or {}), NAME: exact(name), PLAN: _encode(plan).decode()}
    return encode_envelope(payload, max_retries, None, headers, limit, timeout_ms, own)


def with_slot(record: Envelope, slot_ms: int | None) -> bytes:
    """Return the envelope of an occurrence; without a slot, of one that `run_now` asked for."""
    headers = {name: value for name, value in (record.headers or {}).items() if name != SLOT}
    if slot_ms is not None:
        headers[SLOT] = slot_ms
    return encode(msgspec.structs.replace(record, headers=headers))


def plan_of(record: Envelope | None) -> Plan | None:
    """Return the plan of a stored schedule; None if it cannot be read here."""
    plan = _plan((record.headers or {}).get(PLAN)) if record else None
    try:
        if plan is not None:
            recurrence(plan.when, plan.timezone)
    except InvalidInput:
        return None
    return plan


def occurrence(message_id: str, headers: Mapping[str, Any] | None) -> Occurrence | None:
    """Return what a message's own headers say about its schedule.

    Another program may have written them. None unless name, slot, plan and id are all of the form that delayq gives
    them.
    """
    if not headers or NAME not in headers:
        return None
    name, slot, plan = headers[NAME], headers.get(SLOT), _plan(headers.get(PLAN))
    if plan is None or not _is_name(name) or not message_id.startswith(f"{name}@"):
        return None
    rest = message_id[len(name) + 1 :]
    if SLOT not in headers:
        return Occurrence(name, 0, plan) if rest.startswith("run-") else None
    if type(slot) is not int or not 0 < slot <= MAX_TIME_MS or not re.fullmatch(rf"{slot}(~[0-9]+)?", rest):
        return None
    return Occurrence(name, slot, plan)


def _plan(text: object) -> Plan | None:
    try:
        return decode_json(text.encode(), _decode) if isinstance(text, str) else None
    except (msgspec.MsgspecError, ValueError, UnreadableEnvelope):
        return None


def _is_name(name: object) -> bool:
    try:
        check_schedule_name(name)  # type: ignore[arg-type]  # it checks the type
    except InvalidName:
        return False
    return True


def occurrence_id(name: str, slot_ms: int, shards: int) -> str:
    """Return the id of a slot's message; it belongs to the shard that holds the schedules."""
    found = base = f"{name}@{slot_ms}"
    number = 0
    while shard_of(found, shards) != HOME:
        number += 1
        found = f"{base}~{number}"
    return found


def slot_of(message_id: str, shards: int) -> tuple[str, int] | None:
    """Return the schedule and slot of an id; None for an id that `occurrence_id` does not make."""
    name, _, slot = message_id.rpartition("@")
    slot = slot.partition("~")[0]
    if not re.fullmatch(r"[0-9]{1,15}", slot) or occurrence_id(name, int(slot), shards) != message_id:
        return None
    return name, int(slot)
