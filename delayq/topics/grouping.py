"""Groups of a topic: each is handed every record, one consumer of it each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from delayq.calls import Steps, expect, one
from delayq.errors import DelayqError, InvalidInput, UnknownConsumer
from delayq.names import check_group_name
from delayq.operations.inspecting import check_limit
from delayq.times import Seconds, milliseconds
from delayq.topics.core import TopicCore
from delayq.topics.positions import Position, beginning, known_id, order
from delayq.topics.publishing import append_due
from delayq.topics.reading import records
from delayq.topics.record import (
    ConsumerInfo,
    GroupInfo,
    Record,
    Unacked,
    table,
    text_of,
)
from delayq.topics.scripts import MAX_RECORDS, TopicScripts

MAX_POLLED = 10_000


def make(core: TopicCore, group: str, start: Position) -> Steps[bool]:
    """Let a topic have a group; return whether it is new."""
    first = beginning(start)
    shards = yield from core.opened(create=True)
    return any(list(map(expect, (yield [scripts.make_group(group, first) for scripts in shards]))))


def move(core: TopicCore, group: str, position: Position) -> Steps[None]:
    """Let a group go on from elsewhere; what it has unacked stays so."""
    first = beginning(position, "position")
    shards = yield from core.opened()
    for each in (yield [scripts.make_group(group, first, move=True) for scripts in shards]):
        expect(each)


def destroy(core: TopicCore, group: str) -> Steps[bool]:
    """Take a group away, with its unacked list and dead letters; return whether there was one."""
    shards = yield from core.opened()
    return any(list(map(expect, (yield [scripts.destroy(group) for scripts in shards]))))


class Handed(NamedTuple):
    """What a poll has brought: records and, of each shard, the id behind which the next record comes."""

    records: list[Record]
    lasts: list[str]


def poll(core: TopicCore, group: str, consumer: str, count: int) -> Steps[Handed]:
    """Hand up to `count` records that nobody of the group was handed yet to a consumer; append first what is due."""
    check_limit(count, "count", most=MAX_POLLED)
    found: list[Record] = []
    shards = yield from core.opened()
    lasts = ["$"] * len(shards)
    core.turn += 1  # begin with another shard each time, so that none is served last for ever
    for number in range(len(shards)):
        place = (core.turn + number) % len(shards)
        try:
            while len(found) < count:
                limit = min(MAX_RECORDS, count - len(found))
                entries, next_ms, lasts[place] = yield from one(shards[place].poll(group, consumer, limit))
                found += records(core, shards[place], entries, deliveries=1)
                if next_ms == 0:
                    yield from append_due(core)
                elif len(entries) < limit:
                    break
        except DelayqError:  # of another shard, or without memory: what was handed out must not be forgotten
            if not found:
                raise
            break
    return Handed(found, lasts)


def own_unacked(core: TopicCore, group: str, consumer: str, count: int) -> Steps[list[Record]]:
    """Read again what a consumer holds, as after a restart under the same name; ghosts are left out."""
    check_limit(count, "count", most=MAX_POLLED)
    found: list[Record] = []
    for scripts in (yield from core.opened()):
        after = "0"
        while len(found) < count:
            limit = min(MAX_RECORDS, count - len(found))
            calls = [scripts.poll(group, consumer, limit, after)]
            entries = expect((yield calls)[0]).entries
            rows = yield from one(scripts.unacked(group, consumer, 0, "" if after == "0" else after, limit))
            times = {text_of(row[0]): row[3] for row in rows}
            for record in records(core, scripts, entries):
                record.deliveries = times.get(record.id, 1)
                found.append(record)
            if len(entries) < limit:
                break
            after = entries[-1][0]
    return found


def ack(core: TopicCore, group: str, given: Record | str | Iterable[Record | str]) -> Steps[int]:
    """Let records leave a group's unacked list; return how many were on it; raises UnknownGroup."""
    yield from core.opened()
    calls = [
        scripts.ack(group, part) for scripts, ids in by_shard(core, given).items() for part in cut(ids, MAX_RECORDS)
    ]
    count = sum(map(expect, (yield calls))) if calls else 0
    if not count:
        yield from consumers(core, group)  # which raises, as XACK does not, when there is no such group
    return count


def by_shard(core: TopicCore, given: Record | str | Iterable[Record | str]) -> dict[TopicScripts, list[str]]:
    """Sort the ids of records by their shards; raises InvalidInput for what is no record of this topic."""
    if not isinstance(given, Record | str | Iterable):
        raise no_record(given)
    found: dict[TopicScripts, list[str]] = {}
    for each in [given] if isinstance(given, Record | str) else given:
        if isinstance(each, str) and len(core.shards) == 1:
            found.setdefault(core.shards[0], []).append(known_id(each))
        elif isinstance(each, str):
            raise InvalidInput(
                f"topic {core.name} has {len(core.shards)} shards, and id {each[:64]!r} does not tell which: give "
                "records as they were read"
            )
        else:
            checked = check_record(core, each)
            found.setdefault(core.shards[checked.shard], []).append(checked.id)
    return found


def check_record(core: TopicCore, record: object) -> Record:
    """Return a record of this topic, or raise InvalidInput."""
    if not isinstance(record, Record) or record.topic != core.name or record.shard >= len(core.shards):
        raise no_record(record)
    return record


def no_record(given: object) -> InvalidInput:
    """Return the error for what is no record of a topic."""
    return InvalidInput(f"{given!r} is no record of this topic: give records as poll returned them")


def cut(ids: Sequence[str], most: int) -> list[Sequence[str]]:
    """Cut ids into what a call may take."""
    return [ids[start : start + most] for start in range(0, len(ids), most)]


def hold(core: TopicCore, group: str, consumer: str, given: Iterable[Record]) -> Steps[list[Record]]:
    """Let records count as handed out just now; return those that the consumer does not hold any more."""
    lost: list[Record] = []
    shards = yield from core.opened()
    listed = list(given)
    for scripts in shards:
        ours = [each for each in listed if shards[each.shard] is scripts]
        for start in range(0, len(ours), MAX_RECORDS):
            part = ours[start : start + MAX_RECORDS]
            results = yield from one(scripts.hold(group, consumer, [each.id for each in part]))
            lost += [each for each, held in zip(part, results, strict=True) if not held]
    return lost


def unacked(core: TopicCore, group: str, consumer: str | None, idle: Seconds, count: int) -> Steps[list[Unacked]]:
    """List up to `count` records that a group, or one of its consumers, was handed and has not acked.

    Raises:
        UnknownConsumer: nothing was found, and there is no such consumer.
    """
    check_limit(count, "count")
    found = yield from held(core, group, consumer or "", milliseconds(idle, "idle"), count)
    if consumer and not found and consumer not in {each.name for each in (yield from consumers(core, group))}:
        raise UnknownConsumer(f"group {group} of topic {core.name} has no consumer {consumer!r}: see group.consumers()")
    return found


def held(core: TopicCore, group: str, consumer: str, idle_ms: int, count: int) -> Steps[list[Unacked]]:
    """List the same, `consumer` "" for all; of one that there is not, nothing."""
    found: list[Unacked] = []
    for number, scripts in enumerate((yield from core.opened())):
        after = ""
        while len(found) < count:
            limit = min(MAX_RECORDS, count - len(found))
            rows = yield from one(scripts.unacked(group, consumer, idle_ms, after, limit))
            found += [Unacked(text_of(row[0]), text_of(row[1]), row[2] / 1000, row[3], number) for row in rows]
            if len(rows) < limit:
                break
            after = found[-1].id
    return found


def remove_consumer(core: TopicCore, group: str, consumer: str, to: str | None) -> Steps[int]:
    """Remove a consumer, after what it holds was handed over; return how many records that were."""
    if to is not None:
        check_group_name(to, "consumer name")
    if to == consumer:
        raise InvalidInput(f"to={to!r} is the consumer that is to be removed: name another one")
    shards, moved = (yield from core.opened()), 0
    unknown: list[UnknownConsumer] = []
    if to is None and len(shards) > 1:  # where it holds records comes first: it is refused before it has left a shard
        rows = yield [scripts.unacked(group, consumer, 0, "", 1) for scripts in shards]
        shards = [shards[place] for place in sorted(range(len(shards)), key=lambda place: not expect(rows[place]))]
    for scripts in shards:
        done = 0
        try:
            while not done:
                count, done = yield from one(scripts.hand_over(group, consumer, to or ""))
                moved += count
        except UnknownConsumer as error:  # a shard knows it that has served it, and that it has not left before
            unknown.append(error)
    if len(unknown) == len(shards):
        raise unknown[0]
    return moved


def clear_ghosts(core: TopicCore, group: str) -> Steps[int]:
    """Clear unacked entries whose record is gone; return how many."""
    count = 0
    for scripts in (yield from core.opened()):
        after: Any = b"-"
        last = ""
        while after:
            after, ghosts = yield from one(scripts.clear_ghosts(group, last))
            last = text_of(after)
            count += ghosts
    return count


def groups(core: TopicCore) -> Steps[list[GroupInfo]]:
    """List a topic's groups, by name."""
    found: dict[str, GroupInfo] = {}
    for scripts in (yield from core.opened()):
        rows, length = map(expect, (yield [scripts.groups(), scripts.length()]))
        for row in rows:
            told = table(row)
            name, position = text_of(told["name"]), text_of(told["last-delivered-id"])
            lag = told.get("lag")
            if lag is None:  # an older server, or one that has lost count by deletions
                lag = yield from _behind(scripts, position)
            lag = min(lag, length)  # Redis 7.0 counts what was trimmed before the group was handed it
            info = GroupInfo(name, told["consumers"], told["pending"], lag, position)
            before = found.get(name)
            found[name] = info if before is None else _merged(before, info)
    return [found[name] for name in sorted(found)]


def _merged(first: GroupInfo, second: GroupInfo) -> GroupInfo:
    return GroupInfo(
        first.name,
        max(first.consumers, second.consumers),
        first.unacked + second.unacked,
        first.lag + second.lag,
        min(first.position, second.position, key=order),
    )


def _behind(scripts: TopicScripts, after: str) -> Steps[int]:
    total, last = 0, after
    while last:
        count, found = yield from one(scripts.behind(last))
        total += count
        last = text_of(found)
    return total


def info(core: TopicCore, group: str) -> Steps[GroupInfo]:
    """Return what is known of a group; raises UnknownGroup."""
    for each in (yield from groups(core)):
        if each.name == group:
            return each
    yield from consumers(core, group)  # raises what the server says of it
    raise InvalidInput(f"topic {core.name} has no group {group!r}")


def consumers(core: TopicCore, group: str) -> Steps[list[ConsumerInfo]]:
    """List a group's consumers, by name."""
    found: dict[str, ConsumerInfo] = {}
    for scripts in (yield from core.opened()):
        for row in (yield from one(scripts.groups(group))):
            told = table(row)
            name = text_of(told["name"])
            before = found.get(name, ConsumerInfo(name, 0, float("inf")))
            idle = min(before.idle, told["idle"] / 1000)
            found[name] = ConsumerInfo(name, before.unacked + told["pending"], idle)
    return [found[name] for name in sorted(found)]
