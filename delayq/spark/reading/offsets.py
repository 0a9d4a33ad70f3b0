"""How far a stream has been read in each shard, and what was trimmed before it was read.

An offset in a checkpoint:

    {"format": 2, "kind": "events", "prefix": "delayq", "name": "emails",
     "shards": {"0": {"id": "1700000000000-0", "entries": 12, "mark": "1690000000000-0 1690000000.123"}}, "since": …}

`mark` tells the stream from a later one with its name; "" if the stream has none, or its shard was empty. Then the
numbers decide, as far as they can. An id also says which event of an entry with several it is. Before format 2, an
offset was what `shards` holds, without marks. A query that reads several streams has an offset of each:

    {"format": 3, "kind": "events", "prefix": "delayq", "streams": {"emails": {"format": 2, …}, …}}

There, `"gone": true` marks a stream that was deleted, whose loss was logged. Its place is kept in case the same stream
is there again, for example restored from a backup.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

from delayq.errors import InvalidInput
from delayq.model.positions import id_of, number_of, order
from delayq.model.record import Extent


class Offset(NamedTuple):
    """A place in a shard.

    Attributes:
        id: the id of the last entry that was read.
        entries: how many entries (in a ledger, events) had been appended up to that one; None if unknown, as on Redis
            6.2.
        mark: of the stream; "" if it has none.
    """

    id: str
    entries: int | None
    mark: str = ""


class Source(NamedTuple):
    """Whose offsets they are. The address of the server is not part of it: a failover or a move changes it.

    Attributes:
        kind: "events" for a ledger, "topic" for a topic.
        prefix: of its keys.
        name: of the queue or of the topic.
    """

    kind: str
    prefix: str
    name: str


Offsets: TypeAlias = dict[int, Offset]
"""Offsets by the number of the shard. A shard without one was added later and is read from its beginning."""

BEGINNING = Offset("0-0", 0)
FORMAT = 2
SEVERAL = 3
GONE = "gone"
_SINCE = "since"

KEPT_GONE = 1000
"""How many deleted streams of a pattern an offset keeps: names that are used once must not make it ever longer."""


def dump(source: Source, offsets: Offsets, since: Offsets | None = None) -> dict[str, Any]:
    """Return offsets in the form that Spark stores.

    Args:
        since: for the end of a first batch, where the batch begins. Spark does not store that, and asks for the
            beginning again when it repeats the batch.
    """
    shards = {str(shard): offset._asdict() for shard, offset in offsets.items()}
    stored: dict[str, Any] = {"format": FORMAT} | source._asdict() | {"shards": shards}
    return stored if since is None else stored | {_SINCE: dump(source, since)}


def load(source: Source, stored: Mapping[str, Any]) -> Offsets:
    """Read offsets that `dump` returned, or one of an earlier version.

    Raises:
        InvalidInput: they are those of another stream, or in a newer form.
    """
    if "format" not in stored:
        return {int(shard): Offset(**offset) for shard, offset in stored.items() if shard != _SINCE}
    if stored["format"] == SEVERAL:
        others = ", ".join(stored["streams"])
        raise InvalidInput(f"the checkpoint belongs to a query of {others}: list them all, or use another checkpoint")
    if stored["format"] != FORMAT:
        raise InvalidInput(f"the checkpoint has offsets of format {stored['format']}: use a newer delayq to read it")
    found = Source(stored["kind"], stored["prefix"], stored["name"])
    if found != source:
        raise InvalidInput(f"the checkpoint belongs to {_said(found)}, not to {_said(source)}: use another checkpoint")
    return {int(shard): Offset(**offset) for shard, offset in stored["shards"].items()}


def dump_several(source: Source, streams: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the offset of several streams, from what `dump` returned for each name.

    Of the streams that are gone, it keeps the places of those that were read last.

    Args:
        source: of all of them; its name does not matter.
    """
    gone = sorted((name for name, stored in streams.items() if GONE in stored), key=lambda name: _newest(streams[name]))
    left_out = set(gone[:-KEPT_GONE])
    kept = {name: stored for name, stored in streams.items() if name not in left_out}
    return {"format": SEVERAL, "kind": source.kind, "prefix": source.prefix, "streams": kept}


def _newest(stored: Mapping[str, Any]) -> tuple[int, int]:
    return max((order(offset["id"]) for offset in stored["shards"].values()), default=(0, 0))


def load_several(source: Source, stored: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Read what `dump_several` returned, or `dump` for one stream; return the offset of each name, as `load` takes it.

    Raises:
        InvalidInput: they are those of other streams, or in another form.
    """
    if stored.get("format") == FORMAT:
        load(source._replace(name=stored["name"]), stored)
        return {stored["name"]: dict(stored)}
    if stored.get("format") != SEVERAL:
        raise InvalidInput(
            "the checkpoint does not name its streams, or a newer delayq wrote it: use another checkpoint"
        )
    if (stored["kind"], stored["prefix"]) != (source.kind, source.prefix):
        raise InvalidInput(
            f"the checkpoint belongs to {stored['kind']} with prefix {stored['prefix']}, not to {source.kind} with "
            f"prefix {source.prefix}: use another checkpoint"
        )
    return dict(stored["streams"])


def _said(source: Source) -> str:
    kind = "the ledger of queue" if source.kind == "events" else "topic"
    return f"{kind} {source.name} with prefix {source.prefix}"


def begun(source: Source, stored: Mapping[str, Any]) -> Offsets | None:
    """Return where the first batch begins, from its stored end; None for other batches."""
    return load(source, stored[_SINCE]) if _SINCE in stored else None


def end(extent: Extent) -> Offset:
    """Return the place after everything that was ever appended."""
    return Offset(extent.last, extent.added, extent.mark)


def before(entry: int, extent: Extent) -> Offset:
    """Return the place before an entry with this number, which need not exist."""
    behind, mark = max(0, entry - 1), extent.mark
    if extent.first and number_of(extent.first) <= behind:
        return Offset(id_of(behind), None, mark)
    if extent.added is not None:
        return Offset(id_of(behind), extent.added - extent.length, mark)
    # Otherwise entries trimmed between this place and the first existing one would seem to have been trimmed later.
    if extent.first:
        return Offset(id_of(number_of(extent.first) - 1), None, mark)
    return Offset(BEGINNING.id if behind < number_of(extent.last) else id_of(behind), None, mark)


def is_replaced(offset: Offset, extent: Extent) -> bool:
    """Whether a stream is another one than that of an offset, which was deleted.

    Without the marks of both, the numbers decide: a stream does not have fewer entries than before, and while fewer
    are gone from it than were read, the first that is left is among those. That is not known on Redis 6.2.
    """
    if offset.mark and (extent.mark or extent.last == BEGINNING.id):
        return offset.mark != extent.mark
    if offset.entries is None or extent.added is None:
        return False
    gone = extent.added - extent.length
    return extent.added < offset.entries or (
        gone < offset.entries and bool(extent.first) and order(extent.first) > order(offset.id)
    )


def resumed(offset: Offset | None, extent: Extent) -> Offset:
    """Return the place in a stream that was gone, if it is not another one now; else the one before its first entry."""
    return before(0, extent) if offset is None or is_replaced(offset, extent) else offset


def since(offset: Offset, last: Offset) -> Offset:
    """Return where a batch up to `last` begins: at the offset, or at the beginning if the stream was replaced."""
    is_same = not offset.mark or not last.mark or offset.mark == last.mark
    return offset if is_same else BEGINNING


def lost(offset: Offset, extent: Extent) -> str | None:
    """Say what of the entries after a place is gone; None if nothing is.

    If the server counts appended entries, its count is used. Otherwise entries count as lost if they may be: the place
    itself is gone, and something was appended after it.
    """
    if is_replaced(offset, extent):
        return (
            f"the stream that was read up to {offset.id} was deleted, as in a move of the queue, and what it had "
            "after that is gone"
        )
    behind = (offset.entries or 0) - (extent.added or 0)
    if None not in (offset.entries, extent.added) and behind > 0:
        return f"the server has lost the last {behind} of the entries up to {offset.id}, as in a failover"
    count = _missing(offset, extent)
    return None if count is None else f"{count} of the entries after {offset.id} were trimmed before they were read"


def _missing(offset: Offset, extent: Extent) -> str | None:
    if offset.entries is not None and extent.added is not None:
        count = extent.added - extent.length - offset.entries
        return f"{count}" if count > 0 and not _is_held(offset, extent) else None
    may_be = offset.id != BEGINNING.id and order(extent.last) > order(offset.id) and not _is_held(offset, extent)
    return "an unknown number" if may_be else None


def _is_held(offset: Offset, extent: Extent) -> bool:
    """Whether nothing after a place can have been trimmed, as the stream begins before it or right after it."""
    return bool(extent.first) and number_of(extent.first) <= number_of(offset.id) + 1


def advanced(offset: Offset, until: Offset, reached: str, passed: int, extent: Extent) -> Offset:
    """Return the place that was reached when the entries after a place were counted, up to `until`."""
    if reached == until.id:
        return until
    known = offset.entries
    if extent.added is not None and not _is_held(offset, extent):
        known = extent.added - extent.length  # trimmed entries count as passed
    return Offset(reached, None if known is None else known + passed, extent.mark)


def ahead(ends: Mapping[int, Offset], offsets: Offsets) -> Offsets:
    """Return the ends of the shards that have entries after the offsets, those with the largest backlog first."""
    starts = {shard: since(offsets.get(shard, BEGINNING), last) for shard, last in ends.items()}
    left = [shard for shard, last in ends.items() if order(last.id) > order(starts[shard].id)]
    return {shard: ends[shard] for shard in sorted(left, key=lambda shard: order(starts[shard].id))}


def count(offsets: Mapping[int, Offset], ends: Offsets, extents: Mapping[int, Extent]) -> int:
    """Count the entries from some offsets to these ends; at most those, if the server does not count."""
    starts = {shard: since(offsets.get(shard, BEGINNING), last) for shard, last in ends.items()}
    return sum(between(start, ends[shard], extents[shard]) for shard, start in starts.items())


def between(offset: Offset, last: Offset, extent: Extent) -> int:
    """Count the entries of a shard between two places; at most those, if the server does not count."""
    if offset.entries is None or last.entries is None:
        return extent.length
    return last.entries - offset.entries
