"""Read a topic as a group: each group receives every record, and each record goes to one of its consumers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from delayq.errors import DelayqError, InvalidInput, UnknownConsumer
from delayq.model.positions import known_id
from delayq.model.record import Record, Unacked, text_of
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_limit
from delayq.operations.topics import upkeep
from delayq.operations.topics.group_admin import consumers
from delayq.operations.topics.publish import append
from delayq.operations.topics.read import records
from delayq.operations.topics.topic_context import TopicContext, cut, parts
from delayq.operations.watch import Watch
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import ANY_MARK, MAX_RECORDS, TopicCommands

MAX_POLLED = 10_000


class PolledRecords(NamedTuple):
    """The result of a poll.

    Attributes:
        lasts: for each shard, the id after which the next record comes.
        came_due: whether the next poll may bring records that have just come due.
        more: whether it may bring any records: these, or some after a page of records for other groups.
        lost: shards that are unavailable; they may have handed out records whose reply was lost.
    """

    records: list[Record]
    lasts: list[str]
    came_due: bool
    more: bool
    lost: Collection[int] = ()


def poll(
    context: TopicContext,
    group: str,
    consumer: str,
    count: int,
    skipped: Collection[int] = (),
    watch: Watch | None = None,
) -> Operation[PolledRecords]:
    """Hand up to `count` new records of the group to a consumer; append a page of due records.

    Polling also deletes old dead letters.

    Args:
        skipped: the numbers of shards to leave alone.
        watch: of a consumer, which may have ended while the server was frozen; None for any other caller.
    """
    check_limit(count, "count", most=MAX_POLLED)
    return (yield from upkeep.beside(context, group, _poll(context, group, consumer, count, skipped, watch)))


def _poll(
    context: TopicContext, group: str, consumer: str, count: int, skipped: Collection[int], watch: Watch | None
) -> Operation[PolledRecords]:
    shards = yield from context.opened()
    polled = PolledRecords([], ["$"] * len(shards), False, False)
    context.next_shard += 1  # start with another shard each time, so that none is always last
    places = [(context.next_shard + number) % len(shards) for number in range(len(shards))]
    errors: dict[int, DelayqError] = {}
    for place in places:
        if place in skipped:
            continue
        try:
            polled = yield from _poll_shard(context, group, consumer, count, place, polled, watch)
        except DelayqError as error:  # on another shard, or out of memory: return the records already handed out
            errors[place] = error
            if context.outlives(error) and len(errors) + len(skipped) < len(shards):
                continue
            if not polled.records:
                raise
            break
        else:
            context.outages.over(shards[place].keys.meta)
    for place, met in errors.items():
        if context.outlives(met):
            context.outages.met(shards[place].keys.meta, met)
    return polled._replace(lost=errors) if errors else polled


def _poll_shard(
    context: TopicContext,
    group: str,
    consumer: str,
    count: int,
    place: int,
    polled: PolledRecords,
    watch: Watch | None,
) -> Operation[PolledRecords]:
    """Poll a shard, and add to what was polled; its records are added even if an error follows."""
    scripts, found, more, came_due = context.shards[place], polled.records, polled.more, polled.came_due
    while len(found) < count:
        limit = min(MAX_RECORDS, count - len(found))
        by = watch.claims_by(scripts.keys.stream) if watch else ""
        entries, next_ms, polled.lasts[place], mark, is_late = yield from execute(
            scripts.poll(group, consumer, limit, by_ms=by)
        )
        if is_late and watch:
            watch.forget(scripts.keys.stream)
        found += records(context, scripts, entries, 1, mark)
        if next_ms == 0:
            page = yield from execute(scripts.due())
            if page.ids:  # otherwise another client was faster
                yield from append(context, scripts, page.ids)
        came_due = came_due or next_ms == 0
        more = more or came_due or not (entries or polled.lasts[place])
        if len(entries) < limit:  # a call brings only some of them if they are large
            break
    return polled._replace(came_due=came_due, more=more)


def own_unacked(context: TopicContext, group: str, consumer: str, count: int) -> Operation[list[Record]]:
    """Read again the records that a consumer holds, as after a restart with the same name, without ghosts."""
    check_limit(count, "count", most=MAX_POLLED)
    found: list[Record] = []
    for scripts in (yield from context.opened()):
        after = "0"
        while len(found) < count:
            limit = min(MAX_RECORDS, count - len(found))
            calls = [scripts.poll(group, consumer, limit, after)]
            polled = unwrap((yield calls)[0])
            entries = polled.entries
            _, rows = yield from execute(scripts.unacked(group, consumer, 0, "" if after == "0" else after, limit))
            times = {text_of(row[0]): row[3] for row in rows}
            for record in records(context, scripts, entries, 1, polled.mark):
                record.deliveries = times.get(record.id, 1)
                found.append(record)
            if not entries:  # a call brings only some of them if they are large
                break
            after = entries[-1][0]
    return found


def ack(context: TopicContext, group: str, given: Record | str | Iterable[Record | str]) -> Operation[int]:
    """Remove records from a group's unacked list; return how many were on it; raises UnknownGroup."""
    yield from context.opened()
    targets = by_shard(context, given).items()
    calls = [scripts.ack(group, part, mark) for (scripts, mark), ids in targets for part in cut(ids, MAX_RECORDS)]
    count = sum(max(0, unwrap(reply)) for reply in (yield calls)) if calls else 0
    if not count:
        yield from consumers(context, group)  # raises if there is no such group, unlike XACK
    return count


def by_shard(
    context: TopicContext, given: Record | str | Iterable[Record | str]
) -> dict[tuple[TopicCommands, str], list[str]]:
    """Group the ids of records by shard and mark; raises InvalidInput for anything but records of this topic."""
    if not isinstance(given, Record | str | Iterable):
        raise no_record(given)
    found: dict[tuple[TopicCommands, str], list[str]] = {}
    for each in [given] if isinstance(given, Record | str) else given:
        if isinstance(each, str) and len(context.shards) == 1:
            found.setdefault((context.shards[0], ANY_MARK), []).append(known_id(each))
        elif isinstance(each, str):
            raise InvalidInput(
                f"topic {context.name} has {len(context.shards)} shards, and id {each[:64]!r} does not say which: "
                "give the records that were read, not their ids"
            )
        else:
            checked = check_record(context, each)
            if checked.packed:
                checked.packed.left.discard(checked.id)
            if not (checked.packed and checked.packed.left):
                found.setdefault((context.shards[checked.shard], checked.group_mark), []).append(checked.entry_id)
    return found


def check_record(context: TopicContext, record: object) -> Record:
    """Return a record of this topic, or raise InvalidInput."""
    if not isinstance(record, Record) or record.topic != context.name or record.shard >= len(context.shards):
        raise no_record(record)
    return record


def no_record(given: object) -> InvalidInput:
    """Return the error for an object that is not a record of the topic."""
    return InvalidInput(f"{given!r} is not a record of this topic: give records that poll returned")


def renew(
    context: TopicContext,
    group: str,
    consumer: str,
    given: Sequence[Record],
    ack_timeout: Seconds = 30,
    watch: Watch | None = None,
) -> Operation[tuple[list[Record], list[Record], DelayqError | None]]:
    """Reset the idle time of records.

    Args:
        ack_timeout: after which others may take them over.
        watch: of the consumer.

    Returns:
        those that the consumer holds, those that it has lost, and an error. Records on an unavailable shard are in
        neither list and are asked for again at the next heartbeat.
    """
    idle, calls = milliseconds(ack_timeout, "ack_timeout"), []
    targets = parts(context.shards, given, lambda record: record, MAX_RECORDS)
    for scripts, mark, part in targets:
        by = watch.by(scripts.keys.stream) if watch else ""
        calls.append(scripts.renew(group, consumer, [each.id for each in part], idle, mark, by))
    held: list[Record] = []
    lost: list[Record] = []
    trouble = None
    for (_, _, part), call, results in zip(targets, calls, (yield calls) if calls else (), strict=True):
        if isinstance(results, DelayqError):
            trouble = results
            continue
        if watch:
            watch.answered(call.key)
        for record, is_held in zip(part, results, strict=True):
            (held if is_held else lost).append(record)
    return held, lost, trouble


def unacked(
    context: TopicContext, group: str, consumer: str | None, idle: Seconds, count: int
) -> Operation[list[Unacked]]:
    """List up to `count` records that a group, or one of its consumers, has received and not acked.

    Raises:
        UnknownConsumer: nothing was found, and there is no such consumer.
    """
    check_limit(count, "count")
    idle_ms = milliseconds(idle, "idle")
    found: list[Unacked] = []
    for number, scripts in enumerate((yield from context.opened())):
        after = ""
        while len(found) < count:
            limit = min(MAX_RECORDS, count - len(found))
            after, rows = yield from execute(scripts.unacked(group, consumer or "", idle_ms, after, limit))
            found += [Unacked(text_of(row[0]), text_of(row[1]), row[2] / 1000, row[3], number) for row in rows]
            if not after:
                break
    if consumer and not found and consumer not in {each.name for each in (yield from consumers(context, group))}:
        text = f"group {group} of topic {context.name} has no consumer {consumer!r}: see group.consumers()"
        raise UnknownConsumer(text)
    return found


def own_page(
    context: TopicContext, group: str, consumer: str, places: dict[int, str]
) -> Operation[tuple[list[Record], dict[int, str]]]:
    """List a page, on each shard, of the records that a consumer holds, without their fields.

    Args:
        places: the shards to search, each with the id after which to begin.

    Returns:
        the records, and the places of the shards that have more, or are unavailable.
    """
    shards = yield from context.opened()
    numbers = [number for number in places if number < len(shards)]  # otherwise the topic was created again, with fewer
    found: list[Record] = []
    left: dict[int, str] = {}
    calls: list[Command[Any]] = []
    for number in numbers:  # a mark that is read first is at worst that of an earlier group, which settles nothing
        calls += [shards[number].mark(group), shards[number].unacked(group, consumer, 0, places[number], MAX_RECORDS)]
    replies = yield calls
    for number, mark, reply in zip(numbers, replies[::2], replies[1::2], strict=True):
        if context.outlives(reply):
            left[number] = places[number]
            context.outages.met(shards[number].keys.meta, reply)
            continue
        (left_at, rows), known = unwrap(reply), unwrap(mark)
        context.outages.over(shards[number].keys.meta)
        found += [Record(context.name, text_of(row[0]), (), row[3], number, known) for row in rows]
        if left_at:
            left[number] = left_at
    return found, left
