"""Create, move, remove and describe the groups of a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from delayq.errors import DelayqError, InvalidInput, ServerNotReady, UnknownConsumer, UnknownGroup
from delayq.model.credentials import is_unfit_id
from delayq.model.health import STALLED_SECONDS
from delayq.model.positions import Position, beginning, order
from delayq.model.record import GroupConsumer, GroupInfo, GroupReading, table, text_of
from delayq.model.validation import check_group_name
from delayq.operations.topics.topic_context import TopicContext
from delayq.protocol.operation import Operation, execute, unwrap
from delayq.protocol.topic_commands import Recreated, TopicCommands


def make(context: TopicContext, group: str, start: Position) -> Operation[bool]:
    """Create a group if it does not exist; return whether it is new.

    Raises:
        ServerNotReady: it does not exist, and a shard is unavailable, whose records it would miss.
    """
    first = beginning(start)
    shards = yield from context.opened(create=True)
    if len(shards) > 1:
        missing, away = yield from missing_and_away(context, group)
        if missing and away:
            text = f"group {group} of topic {context.name} cannot be created without all shards: {away[0]}"
            raise ServerNotReady(text)
        if not missing:
            return False
    return any(list(map(unwrap, (yield [scripts.make_group(group, first) for scripts in shards]))))


def missing_and_away(context: TopicContext, group: str) -> Operation[tuple[list[UnknownGroup], list[DelayqError]]]:
    """Return the errors of the shards that lack a group, and of those that are unavailable while others are not."""
    replies: list[Any] = yield [scripts.groups(group) for scripts in (yield from context.opened())]
    missing = [each for each in replies if isinstance(each, UnknownGroup)]
    away = [each for each in replies if context.outlives(each)]
    for each in replies:
        if len(away) == len(replies) or each not in (*missing, *away):
            unwrap(each)
    return missing, away


def recreate(
    context: TopicContext, group: str, handed: Mapping[int, str], seconds: float
) -> Operation[list[Recreated]]:
    """Create a group again where it was lost; return where this call has created it.

    Where the stream was lost, too, or nothing is known, it begins with the first record.

    Args:
        handed: for each shard, the id up to which records are known to have been handed out.
        seconds: for which its consumers may bring back the records that they hold.

    Raises:
        UnknownGroup: it was destroyed.
    """
    is_lost = yield from context.reopened()
    calls = [
        scripts.recreate_group(group, "" if is_lost else handed.get(number, ""), int(seconds * 1000))
        for number, scripts in enumerate(context.shards)
    ]
    replies = [unwrap(reply) for reply in (yield calls) if not context.outlives(reply)]
    return [each for each in replies if each.is_new]


def move(context: TopicContext, group: str, position: Position) -> Operation[None]:
    """Move a group to another position; its unacked records stay unacked."""
    first = beginning(position, "position")
    shards = yield from context.opened()
    for each in (yield [scripts.make_group(group, first, move=True) for scripts in shards]):
        unwrap(each)


class Move(NamedTuple):
    """The effect of moving a group.

    Attributes:
        again: records that it has already received and would receive again.
        skipped: records that it has not received yet and would never receive.
        at_least: whether there may be more of both: up to 10,000 are counted in each shard.
    """

    again: int
    skipped: int
    at_least: bool


def foresee_move(context: TopicContext, group: str, position: Position) -> Operation[Move]:
    """Count the effect of moving a group; raises UnknownGroup."""
    first = beginning(position, "position")
    again, skipped, at_least, is_known = 0, 0, False, False
    for scripts in (yield from context.opened()):
        rows, extent = map(unwrap, (yield [scripts.groups(), scripts.extent()]))
        positions = {text_of(row["name"]): text_of(row["last-delivered-id"]) for row in map(table, rows)}
        is_known = is_known or group in positions
        at, target = order(positions.get(group, "0-0")), order(extent.last if first == "$" else first)
        count, more = yield from count_between(scripts, _id(min(at, target)), _id(max(at, target)), MAX_LAG_CALLS)
        again, skipped = (again + count, skipped) if target < at else (again, skipped + count)
        at_least = at_least or more
    if not is_known:
        yield from consumers(context, group)  # raises the error of the server
    return Move(again, skipped, at_least)


def _id(parts: tuple[int, int]) -> str:
    return f"{parts[0]}-{parts[1]}"


def destroy(context: TopicContext, group: str) -> Operation[bool]:
    """Remove a group with its unacked list and dead letters, in pages; return whether there was one."""
    shards, existed = (yield from context.opened()), False
    while shards:
        replies = list(map(unwrap, (yield [scripts.destroy(group) for scripts in shards])))
        existed = existed or any(replies)
        shards = [scripts for scripts, reply in zip(shards, replies, strict=True) if reply < 0]
    return existed


def remove_consumer(context: TopicContext, group: str, consumer: str, to: str | None) -> Operation[int]:
    """Remove a consumer after handing over the records that it holds; return how many there were."""
    if not isinstance(consumer, str) or is_unfit_id(consumer):  # otherwise any name: other programs may have given it
        check_group_name(consumer, "consumer name")
    if to is not None:
        check_group_name(to, "consumer name")
    if to == consumer:
        raise InvalidInput(f"to={to!r} is the consumer to remove: name another one")
    shards, moved = (yield from context.opened()), 0
    unknown: list[UnknownConsumer] = []
    if to is None and len(shards) > 1:  # start with shards where it holds records, to refuse before it leaves any
        rows = yield [scripts.unacked(group, consumer, 0, "", 1) for scripts in shards]
        shards = [shards[place] for place in sorted(range(len(shards)), key=lambda place: not unwrap(rows[place])[1])]
    for scripts in shards:
        done = 0
        try:
            while not done:
                count, done = yield from execute(scripts.remove_consumer(group, consumer, to or ""))
                moved += count
        except UnknownConsumer as error:  # only shards that it has read from and not yet left know it
            unknown.append(error)
    if len(unknown) == len(shards):
        raise unknown[0]
    return moved


def clear_ghosts(context: TopicContext, group: str) -> Operation[int]:
    """Clear unacked entries whose record is gone; return how many."""
    count = 0
    for scripts in (yield from context.opened()):
        after: Any = b"-"
        last = ""
        while after:
            after, ghosts = yield from execute(scripts.clear_ghosts(group, last))
            last = text_of(after)
            count += ghosts
    return count


MAX_LAG_CALLS = 10  # each counts a thousand records, or a few large ones


def groups(context: TopicContext, quick: bool = False) -> Operation[list[GroupInfo]]:
    """List a topic's groups, by name.

    Args:
        quick: count a lag that the server does not know in one call for each group and shard.
    """
    most_calls = 1 if quick else MAX_LAG_CALLS
    found: dict[str, GroupInfo] = {}
    for scripts in (yield from context.opened()):
        rows, extent = map(unwrap, (yield [scripts.groups(), scripts.extent()]))
        tables = [table(row) for row in rows]
        dead = (yield [scripts.dead_length(text_of(fields["name"])) for fields in tables]) if tables else []
        for fields, buried in zip(tables, map(unwrap, dead), strict=True):
            name, position = text_of(fields["name"]), text_of(fields["last-delivered-id"])
            lag = fields.get("lag")
            if lag is None and fields.get("entries-read") is not None:  # deletions made it lose count: a bit too high
                lag = extent.added - fields["entries-read"] if extent.added is not None else None
            at_least = False
            if order(position) >= order(extent.last):
                lag = 0
            elif extent.first and order(position) < order(extent.first):
                lag = extent.length
            elif lag is None:
                lag, at_least = yield from count_between(scripts, position, "+", most_calls)
            elif (
                lag and extent.added != extent.length
            ):  # Redis 7.0 counts records that were trimmed before it read them
                count, is_more = yield from count_between(scripts, position, "+", 1)
                lag = max(count, min(lag, extent.length)) if is_more else count
            info = GroupInfo(name, fields["consumers"], fields["pending"], lag, position, at_least, buried)
            before = found.get(name)
            found[name] = info if before is None else _merged(before, info)
    return [found[name] for name in sorted(found)]


def readings(context: TopicContext) -> Operation[list[GroupReading]]:
    """Read a topic's groups, and whether somebody handles them, by name."""
    seen: dict[str, set[str]] = {}
    ages: dict[str, float] = {}
    infos = yield from groups(context, quick=True)
    for scripts in (yield from context.opened()):
        rows = [table(row) for row in (yield from execute(scripts.groups()))]
        now = yield from execute(scripts.time())
        firsts = (yield [scripts.lag(text_of(row["last-delivered-id"]), 1) for row in rows]) if rows else []
        members = (yield [scripts.groups(text_of(row["name"])) for row in rows]) if rows else []
        for row, (_, first, _), consumers_of in zip(rows, map(unwrap, firsts), members, strict=True):
            name = text_of(row["name"])
            ages[name] = max(ages.get(name, 0.0), _age(text_of(first), now))
            if not isinstance(consumers_of, UnknownGroup):  # it was destroyed meanwhile
                tables = map(table, unwrap(consumers_of))
                alive = {text_of(each["name"]) for each in tables if each["idle"] <= STALLED_SECONDS * 1000}
                seen[name] = seen.get(name, set()) | alive
    return [GroupReading(each, len(seen.get(each.name, ())), ages.get(each.name, 0.0)) for each in infos]


FIRST_TIME_MS = 10**12  # in 2001: a lower id was not made from a time


def _age(record_id: str, now_ms: int) -> float:
    ms = order(record_id)[0] if record_id else 0
    return max(0.0, (now_ms - ms) / 1000) if ms >= FIRST_TIME_MS else 0.0


def _merged(first: GroupInfo, second: GroupInfo) -> GroupInfo:
    return GroupInfo(
        first.name,
        max(first.consumers, second.consumers),
        first.unacked + second.unacked,
        first.lag + second.lag,
        min(first.position, second.position, key=order),
        first.at_least or second.at_least,
        first.dead + second.dead,
    )


def count_between(scripts: TopicCommands, after: str, to: str, most_calls: int) -> Operation[tuple[int, bool]]:
    """Count the records after an id up to a bound; return how many, and whether there may be more."""
    total, last = 0, after
    for _ in range(most_calls):
        count, found, more = yield from execute(scripts.lag(last, to=to))
        total += count
        last = text_of(found)
        if not more:
            return total, False
    return total, True


def info(context: TopicContext, group: str, quick: bool = False) -> Operation[GroupInfo]:
    """Return one group, as `groups` does; raises UnknownGroup."""
    for each in (yield from groups(context, quick)):
        if each.name == group:
            return each
    yield from consumers(context, group)  # raises the error of the server
    raise InvalidInput(f"topic {context.name} has no group {group!r}")


def consumers(context: TopicContext, group: str) -> Operation[list[GroupConsumer]]:
    """List a group's consumers, by name."""
    found: dict[str, GroupConsumer] = {}
    for scripts in (yield from context.opened()):
        for row in (yield from execute(scripts.groups(group))):
            fields = table(row)
            name = text_of(fields["name"])
            before = found.get(name, GroupConsumer(name, 0, float("inf")))
            idle = min(before.idle, fields["idle"] / 1000)
            found[name] = GroupConsumer(name, before.unacked + fields["pending"], idle)
    return [found[name] for name in sorted(found)]
