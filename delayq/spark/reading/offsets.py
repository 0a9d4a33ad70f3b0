"""How far a stream has been read, shard by shard, and what was trimmed before it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from delayq.protocol.operation import Operation, execute
from delayq.protocol.topic_commands import Extent, TopicCommands
from delayq.spark.reading.stream_partitions import id_of, number

COUNTED_AT_ONCE = 1000


class Offset(NamedTuple):
    """A place in a shard.

    Attributes:
        id: of the last entry that was read.
        entries: how many had been appended when that one was; None where nobody knows, as on Redis 6.2.
    """

    id: str
    entries: int | None


Offsets: TypeAlias = dict[int, Offset]
"""By the numbers of the shards. A shard that has none is read from its beginning: it came later."""

BEGINNING = Offset("0-0", 0)
_SINCE = "since"


def dump(offsets: Offsets, since: Offsets | None = None) -> dict[str, Any]:
    """Return offsets as Spark keeps them.

    Args:
        since: of the end of a first batch, where that begins. Spark does not keep it, and asks for the beginning anew
            when the batch is done again.
    """
    stored: dict[str, Any] = {str(shard): offset._asdict() for shard, offset in offsets.items()}
    return stored if since is None else stored | {_SINCE: dump(since)}


def load(stored: Mapping[str, Any]) -> Offsets:
    """Read what `dump` has returned."""
    return {int(shard): Offset(**offset) for shard, offset in stored.items() if shard != _SINCE}


def begun(stored: Mapping[str, Any]) -> Offsets | None:
    """Return where the batch begins whose end was stored, of the first one; None of others."""
    return load(stored[_SINCE]) if _SINCE in stored else None


def end(extent: Extent) -> Offset:
    """Return the place behind all that was ever appended."""
    return Offset(extent.last, extent.added)


def before(entry: int, extent: Extent) -> Offset:
    """Return the place in front of an entry with this number, which need not be there."""
    behind = max(0, entry - 1)
    if extent.first and number(extent.first) <= behind:
        return Offset(id_of(behind), None)
    if extent.added is not None:
        return Offset(id_of(behind), extent.added - extent.length)
    # What was trimmed between the place and what is there would, by its id, seem to have been so later.
    if extent.first:
        return Offset(id_of(number(extent.first) - 1), None)
    return Offset(BEGINNING.id if behind < number(extent.last) else id_of(behind), None)


def missing(offset: Offset, extent: Extent) -> str | None:
    """Say how many of the entries behind a place have been trimmed; None for none of them.

    A server that counts what was appended is believed. Without counts, those are taken for missing that may be: the
    place itself is no longer there, and something was appended behind it.
    """
    if offset.entries is not None and extent.added is not None:
        if extent.added < offset.entries:
            return "all, for the stream was made anew,"
        count = extent.added - extent.length - offset.entries
        return f"{count}" if count > 0 and not _is_held(offset, extent) else None
    may_be = offset.id != BEGINNING.id and number(extent.last) > number(offset.id) and not _is_held(offset, extent)
    return "an unknown number" if may_be else None


def _is_held(offset: Offset, extent: Extent) -> bool:
    """Whether nothing behind a place can have been trimmed: what is there begins in front of it, or right behind it."""
    return bool(extent.first) and number(extent.first) <= number(offset.id) + 1


def advance(
    _: object, scripts: TopicCommands, offset: Offset, until: Offset, most: int
) -> Operation[tuple[Offset, int]]:
    """Go on by at most `most` entries, to `until` at the farthest; return the place, and how many entries that were."""
    extent = yield from execute(scripts.extent())
    passed, at = 0, offset.id
    while passed < most:
        count, last, _ = yield from execute(scripts.lag(at, min(most - passed, COUNTED_AT_ONCE)))
        passed += count
        if not count or number(last.decode()) >= number(until.id):
            return until, passed
        at = last.decode()
    known = offset.entries
    if extent.added is not None and not _is_held(offset, extent):
        known = extent.added - extent.length  # and those that were trimmed are behind us, too
    return Offset(at, None if known is None else known + passed), passed


def ahead(ends: Mapping[int, Offset], offsets: Offsets) -> Offsets:
    """Return the ends of the shards in which there is something behind the offsets, what is farthest behind first."""
    left = {shard: last for shard, last in ends.items() if number(last.id) > number(offsets.get(shard, BEGINNING).id)}
    return dict(sorted(left.items(), key=lambda each: number(offsets.get(each[0], BEGINNING).id)))
