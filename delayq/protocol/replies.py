"""The replies of a queue's scripts, and how to read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from delayq.late_import import late_import
from delayq.model import packed_events
from delayq.model.configuration import Configuration, Usage, configured
from delayq.model.occurrence import FINISHED
from delayq.model.placement import STATES, State
from delayq.model.queue_stats import Counts
from delayq.model.text import decode_count, decode_deliveries, decode_id, decode_ms, decode_text, is_foreign_id
from delayq.model.units import MAX_TIME_MS

if TYPE_CHECKING:
    from delayq.model.explanation import Standing
    from delayq.model.record import Extent


class OpenedQueue(NamedTuple):
    """The record of a queue; `recorded` and `since` are as open_queue returns them."""

    shards: int
    recorded: int
    since: bytes
    configuration: Configuration


class Claimed(NamedTuple):
    """The messages that ready_to_unack handed out.

    Attributes:
        held: whether a limit held messages back; None without limits and while the queue is paused.
        pause_ends: whether the queue is paused and the pause ends by itself.
        has_large: whether the queue may hold envelopes of more than `LARGE_BYTES`.
    """

    now_ms: int
    micros: int
    ids: list[str]
    dues_ms: list[int]
    deliveries: list[str | None]
    held: bool | None = None
    pause_ends: bool = False
    has_large: bool = False


class SleepReply(NamedTuple):
    """The reply of plan_sleep and poll_idle: how long to sleep, and which message is due then, or ""."""

    micros: int
    message_id: str


class KeyedDelivery(NamedTuple):
    """A delivery under the limit per key."""

    key: str
    message_id: str
    receipt: str
    due_ms: int = 0


class StoredMessage(NamedTuple):
    """A message as get returns it."""

    scores: dict[State, float]
    deliveries: str | None
    error: str | None
    reason: str | None
    cancelled: bool
    stored: bytes | None
    group: str | None = None
    progress: bytes | None = None


class StoredGroup(NamedTuple):
    """A group as group returns it: its record, all members, those left, and how many of these are dead letters."""

    record: str
    roster: list[str]
    left: list[str]
    dead: int


class CancelledGroup(NamedTuple):
    """What was cancelled of a group, and what is left.

    Attributes:
        waited: 1 if the message that waits was cancelled, else 0.
        ids: of the members left.
        is_lost: whether the list of its members is lost.
    """

    waited: int
    ids: list[str]
    is_lost: bool


class MendedPage(NamedTuple):
    """What a page of a sweep of groups has mended.

    Attributes:
        more: 1 if there is more to look at now, else 0.
        members: whose memberships were wrong.
        groups: whose records were wrong or lost.
    """

    more: int
    members: int
    groups: int


class ConsumersReply(NamedTuple):
    """The reports of consumers: name, when it was last seen, ms, and document of each; and what the next page skips."""

    now_ms: int
    reports: list[tuple[str, int, bytes]]
    more: int


class DueCounts(NamedTuple):
    """The counts of upcoming: for each bucket, the messages in pending and those in retry."""

    now_ms: int
    pending: list[int]
    retry: list[int]


class LedgerExtent(NamedTuple):
    """The reply of ledger_extent: the extent, in events; where to continue the search for its first one, or ""."""

    extent: Extent
    next: str


class LedgerPage(NamedTuple):
    """The reply of history: the last entry that was checked, "" at the end; ids and fields of the message's entries."""

    last: str
    entries: list[tuple[str, list[bytes]]]


_PAUSED = 2

LARGE_BYTES = 8192
"""An envelope above this is large, as in prelude.lua."""


def _read_claimed(reply: list[Any]) -> Claimed:
    now_ms, micros, flat, deliveries, *more = reply
    held, has_large = (*more, None, None)[:2]
    try:
        ids = [message_id.decode() for message_id in flat[::2]]
    except UnicodeDecodeError:
        ids = list(map(decode_id, flat[::2]))
    try:
        dues = list(map(int, flat[1::2]))
    except ValueError:  # a score with a fraction, or an infinite one
        dues = [decode_ms(due) for due in flat[1::2]]
    earlier: list[str | None] = [decode_deliveries(each) for each in deliveries] if deliveries else [None] * len(ids)
    if held == _PAUSED:
        return Claimed(now_ms, micros, ids, dues, earlier, pause_ends=True)
    may_be_large = bool(ids) and has_large != 0  # a reply that another version has kept does not say it
    return Claimed(now_ms, micros, ids, dues, earlier, None if held is None else held == 1, has_large=may_be_large)


def _read_sleep(reply: list[Any]) -> SleepReply:
    micros, message_id = reply
    return SleepReply(micros, decode_id(message_id))


def _read_scored(reply: list[Any]) -> list[tuple[str, bytes]]:
    if reply and isinstance(reply[0], list):  # RESP3
        return [(decode_id(message_id), b"%.17g" % score) for message_id, score in reply]
    ids, scores = reply[::2], reply[1::2]
    try:
        return list(zip(map(bytes.decode, ids), scores, strict=True))  # a third of the time of the next line
    except UnicodeDecodeError:
        return list(zip(map(decode_id, ids), scores, strict=True))


def _read_armed(reply: list[Any]) -> list[tuple[str, int]]:
    rows = [(name, float(slot)) for name, slot in _read_scored(reply)]
    return [(name, int(slot)) for name, slot in rows if FINISHED <= slot <= MAX_TIME_MS and not is_foreign_id(name)]


def _read_opened(reply: list[Any]) -> OpenedQueue:
    shards, recorded, since, values = reply
    return OpenedQueue(shards, recorded, since, configured(values))


def _read_stored(reply: list[Any]) -> StoredMessage:
    scores, deliveries, error, reason, cancelled, stored, group, progress = reply
    where = {state: float(score) for state, score in zip(STATES, scores, strict=False) if score is not None}
    return StoredMessage(
        where,
        decode_text(deliveries),
        decode_text(error),
        decode_text(reason),
        bool(cancelled),
        stored,
        decode_text(group),
        progress,
    )


def _read_group(reply: list[Any] | None) -> StoredGroup | None:
    if reply is None:
        return None
    record, roster, left, dead = reply
    return StoredGroup(decode_id(record), list(map(decode_id, roster)), list(map(decode_id, left)), dead)


def _read_cancelled_group(reply: list[Any] | None) -> CancelledGroup | None:
    return None if reply is None else CancelledGroup(reply[0], list(map(decode_id, reply[1])), reply[2] == 1)


def _read_mended(reply: list[int]) -> MendedPage:
    return MendedPage(*reply)


def _read_standing(reply: list[Any]) -> Standing:
    with late_import:
        from delayq.model.explanation import Standing  # noqa: PLC0415
    now_ms, paused, earlier, running, free, opens, parked = reply
    since, until = _read_pause(paused)
    return Standing(now_ms, since, earlier, running, free, opens, None if parked is None else tuple(parked), until)


def _read_usage(reply: list[Any]) -> Usage:
    (concurrency, running), (rate, period_ms, handed_out), (per_key, slots, waiting), *others = reply
    (late, latest_ms), (max_length, length) = others
    return Usage(
        concurrency=concurrency,
        running=running,
        rate=rate if period_ms else None,
        period_ms=period_ms if rate else None,
        handed_out=handed_out,
        per_key=per_key,
        key_slots=slots,
        key_waiting=waiting,
        late_schedules=late,
        latest_ms=latest_ms,
        max_length=max_length,
        length=length,
    )


def _read_last_seen(reply: list[Any]) -> tuple[str, int] | None:
    return next(((name, decode_ms(seen)) for name, seen in _read_scored(reply)), None)


def _read_consumers(reply: list[Any]) -> ConsumersReply:
    now_ms, flat, more = reply
    rows = zip(flat[::3], flat[1::3], flat[2::3], strict=True)
    reports = [(decode_id(name), decode_ms(seen), document) for name, seen, document in rows]
    return ConsumersReply(now_ms, reports, more)


def _read_samples(reply: list[Any]) -> list[tuple[int, str]]:
    return [(int(entry.partition(b"-")[0]), fields[1].decode(errors="replace")) for entry, fields in reply]


def _read_due_counts(reply: list[Any]) -> DueCounts:
    now_ms, counts = reply
    return DueCounts(now_ms, counts[::2], counts[1::2])


def _read_ledger_page(reply: list[Any]) -> LedgerPage:
    last, entries = reply
    return LedgerPage(last.decode(), [(entry.decode(), fields) for entry, fields in entries])


def _read_ledger_extent(reply: list[Any]) -> LedgerExtent:
    with late_import:
        from delayq.model.record import Extent, known_mark, text_of  # noqa: PLC0415
    length, first, last, added, excess, before, left, mark = reply
    events = length + excess - before
    entry = first[0].decode() if first else ""
    begin = packed_events.parts(entry, first[1])[0][0] if first else ""
    known = known_mark(text_of(mark), entry, None if added < 0 else added - length)
    count = None if added < 0 else added + excess
    return LedgerExtent(Extent(max(length, events), begin, last.decode(), count, known), left.decode())


def _read_counts(reply: list[Any]) -> Counts:
    now_ms, paused, counts, heads, flat, (pending_due, retry_due) = reply
    paused_ms, paused_until_ms = _read_pause(paused)
    return Counts(
        now_ms,
        paused_ms,
        dict(zip(STATES, counts, strict=True)),
        {state: float(score) for state, score in zip(STATES, heads, strict=False) if score is not None},
        dict(zip(map(decode_id, flat[::2]), map(decode_count, flat[1::2]), strict=True)),
        pending_due,
        retry_due,
        paused_until_ms,
    )


def _read_pause(reply: list[bytes | None]) -> tuple[int | None, int | None]:
    """Return since when and until when a queue is paused, ms."""
    since, until = reply or (None, None)
    return None if since is None else decode_ms(since), None if until is None else decode_ms(until)


def _read_finished(reply: list[Any]) -> list[tuple[str, str]]:
    return [(entry.decode(), decode_id(fields[1])) for entry, fields in reply]
