"""Publish records to a topic, now or when they are due."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from delayq.errors import DelayqError, InvalidInput
from delayq.log import log
from delayq.model.envelope import Headers, encode_envelope
from delayq.model.message_ids import new_id
from delayq.model.positions import order, own_id
from delayq.model.progress import Progress
from delayq.model.record import Published
from delayq.model.text import printable_id
from delayq.model.units import Seconds, due_word, from_ms
from delayq.model.validation import check_id
from delayq.operations.byte_budget import trips
from delayq.operations.topics.topic_context import TopicContext, check_length
from delayq.protocol.command import Command, Raw
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import MAX_RECORDS, TopicCommands

TRIP_CALLS = 4
CALL_BYTES = 4 * 1024 * 1024  # of envelopes: Redis does nothing else while it copies them


class _RecordPayload(msgspec.Struct, frozen=True):
    payload: Any


class NewRecord(_RecordPayload, frozen=True, kw_only=True):
    """A record to publish, with the options that `Topic.publish` takes.

    Args:
        payload: bytes, which arrive unchanged, or anything that JSON can hold, as in a message of a queue.
        delay: seconds (0 or more) or a timedelta until it is appended; at once without `delay` and `at`.
        at: an aware datetime at which it is appended, instead of `delay`.
        id: for a record that is appended at once, an id greater than that of the last record, such as
            "1700000000000-0". For a record that waits, 1 to 256 bytes: use it to cancel the record; publishing it again
            changes nothing. None for the server's id, or a random one.
        key: records with the same key keep their order in a topic with several shards; it has no effect with one shard.
            It decides the shard in which `id` is searched, so always give a waiting record's id with the same key.
        headers: a dict of names and strings, bytes, numbers, booleans or None. Names that begin with "delayq-" are
            refused: they are delayq's own.
    """

    delay: Seconds | None = None
    at: dt.datetime | None = None
    id: str | None = None
    key: str | None = None
    headers: Headers | None = None

    @property
    def waits(self) -> bool:
        """Whether it has to wait until it is due."""
        return self.at is not None or bool(self.delay)


class _EncodedRecord(NamedTuple):
    position: int  # among the records of the call
    words: tuple[Raw, ...]


def publish(
    context: TopicContext, records: Iterable[NewRecord], max_length: int | None, exact: bool | None
) -> Operation[list[Published]]:
    """Publish records in batches; all are checked before the first is stored.

    Raises:
        InvalidInput: for any of them; RecordOrder: a given id is not greater than that of the last record.
    """
    if isinstance(records, str | bytes) or not isinstance(records, Iterable):
        raise InvalidInput(f"{records!r} is not a list: give publish_many a list of NewRecord(payload, …)")
    chosen = list(records)
    most = context.settings.max_length if max_length is None else check_length(max_length)
    exactly = context.settings.exact if exact is None else exact
    checked = [_words(context, each) for each in chosen]
    yield from context.opened(create=True)
    now, later = _by_shard(context, chosen, checked)
    results: list[Any] = [None] * len(chosen)
    calls: list[tuple[Command[Any], Sequence[_EncodedRecord]]] = []
    for scripts, encoded in now.items():
        calls += [(scripts.publish([each.words for each in part], most, exactly), part) for part in _parts(encoded)]  # type: ignore[misc]
    for scripts, encoded in later.items():
        calls += [(scripts.publish_later([each.words for each in part]), part) for part in _parts(encoded)]  # type: ignore[misc]
    owned = any(each.id is not None and not each.waits for each in chosen)
    size = 1 if owned else TRIP_CALLS  # if a given id is refused, the greater ones after it must not be stored
    progress = Progress(f"of {len(chosen):,} records are stored")
    failed: dict[str, DelayqError] = {}  # by the key of a shard that is unavailable
    with progress.explained() if len(calls) > 1 else nullcontext():  # one call stores all or nothing
        for start in range(0, len(calls), size):
            trip = [each for each in calls[start : start + size] if each[0].key not in failed]
            progress.in_doubt = True
            replies = (yield [call for call, _ in trip]) if trip else []
            progress.note([part for _, part in trip], replies)
            progress.in_doubt |= bool(failed)
            for (call, part), reply in zip(trip, replies, strict=True):
                if context.outlives(reply):
                    failed[call.key] = reply
                    continue
                for each, answer in zip(part, unwrap(reply), strict=True):
                    results[each.position] = _published(each, answer)
        for error in failed.values():  # the records for other shards are stored
            progress.in_doubt = True
            raise error
    return results


def _words(context: TopicContext, record: object) -> tuple[Raw, ...]:
    """Check a record; return its id, its due time if it waits, and its envelope."""
    if not isinstance(record, NewRecord):
        raise InvalidInput(f"{record!r} is not a NewRecord: give publish_many a list of NewRecord(payload, …)")
    if record.key is not None and not isinstance(record.key, str):
        raise InvalidInput(f"key {record.key!r} is not a string")
    envelope = encode_envelope(record.payload, 0, None, record.headers, context.settings.max_payload)
    due = due_word(record.delay, record.at)
    if record.waits:
        return new_id() if record.id is None else check_id(record.id), due, envelope
    return "*" if record.id is None else own_id(record.id), envelope


def _by_shard(
    context: TopicContext, records: Sequence[NewRecord], checked: Sequence[tuple[Raw, ...]]
) -> tuple[dict[TopicCommands, list[_EncodedRecord]], dict[TopicCommands, list[_EncodedRecord]]]:
    """Return the records to append at once and those that wait, by shard."""
    now: dict[TopicCommands, list[_EncodedRecord]] = defaultdict(list)
    later: dict[TopicCommands, list[_EncodedRecord]] = defaultdict(list)
    places: dict[Raw, TopicCommands] = {}  # of waiting records, by id
    for position, (record, words) in enumerate(zip(records, checked, strict=True)):
        named = words[0]
        scripts = context.shard_for(record.key or str(named) if record.waits else record.key)
        if record.waits and places.setdefault(named, scripts) is not scripts:
            raise InvalidInput(f"id {named!r} is given with keys of several shards: always give it the same key")
        (later if record.waits else now)[scripts].append(_EncodedRecord(position, words))
    for encoded in now.values():
        _check_order([str(each.words[0]) for each in encoded])
    return now, later


def _check_order(ids: Sequence[str]) -> None:
    own = [each for each in ids if each != "*"]
    if own and len(own) < len(ids):
        raise InvalidInput("some records have an id and some have none: give all of them an id, or none")
    for first, second in pairwise(own):
        if order(second) <= order(first):
            raise InvalidInput(f"record id {second!r} does not come after {first!r}: ids must strictly rise")


def _parts(encoded: Sequence[_EncodedRecord]) -> Iterator[list[_EncodedRecord]]:
    """Group records into calls, bounded in number and bytes."""
    return trips(((each, len(each.words[-1])) for each in encoded), MAX_RECORDS, CALL_BYTES)  # type: ignore[arg-type]


def _published(encoded: _EncodedRecord, answer: Any) -> Published:
    if isinstance(answer, str):
        return Published(answer)
    return Published(str(encoded.words[0]), None if answer < 0 else from_ms(answer), answer >= 0)


class Waiting(NamedTuple):
    """What to wait for.

    Attributes:
        next_ms: milliseconds until the next record is appended; None if none waits.
        seen: for each shard, the id after which to read the key that announces an earlier record.
    """

    next_ms: int | None
    seen: list[str]


def append_due(context: TopicContext) -> Operation[Waiting]:
    """Append a page of due records on each shard; return what to wait for."""
    shards = yield from context.opened()
    waits: list[int | None] = []
    seen: list[str] = []
    for scripts, reply in zip(shards, (yield [scripts.due() for scripts in shards]), strict=True):
        if context.outlives(reply):
            seen.append("$")
            continue
        behind = page = unwrap(reply)
        if page.ids:
            yield from append(context, scripts, page.ids)
            behind = yield from execute(scripts.due())
        waits.append(0 if behind.ids else behind.next_ms)
        seen.append(behind.seen)
    return Waiting(min((each for each in waits if each is not None), default=None), seen)


def append(context: TopicContext, scripts: TopicCommands, ids: Sequence[str]) -> Operation[None]:
    """Append a page of a shard's due records."""
    lost = yield from execute(scripts.append(ids, context.settings.max_length, context.settings.exact))
    if lost:
        log.error(
            "records lost",
            topic=context.name,
            count=len(lost),
            ids=list(map(printable_id, lost[:10])),
        )


def append_all_due(context: TopicContext) -> Operation[None]:
    """Append all due records."""
    while (yield from append_due(context)).next_ms == 0:
        pass


def cancel(context: TopicContext, record_id: str) -> Operation[bool]:
    """Cancel a waiting record; return whether it was waiting."""
    check_id(record_id)
    shards = yield from context.opened()
    return any(map(unwrap, (yield [scripts.cancel(record_id) for scripts in shards])))
