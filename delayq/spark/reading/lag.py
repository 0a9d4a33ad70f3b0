"""How far a stream's query is behind, from its checkpoint and the server, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from delayq.errors import InvalidInput
from delayq.lake import object_store
from delayq.lake.shown_path import shown
from delayq.operations.topics import partitions
from delayq.spark.reading import offsets as at
from delayq.spark.reading.batch_reader import EntryStreams
from delayq.spark.reading.offsets import BEGINNING, Offsets, Source
from delayq.spark.redis_options import RedisOptions


class ShardLag(NamedTuple):
    """What a query has not read of a shard.

    Attributes:
        kind: "events" for the ledger of a queue, "topic" for a topic.
        name: of the queue or the topic.
        read: the last entry in a batch that is complete; "0-0" before the first one.
        last: the last entry that was appended.
        backlog: how many entries (in a ledger, events) follow `read`; at most that many if the server does not count.
        lost: which of these are gone, in a sentence; None if none is. The query fails, unless `failOnDataLoss` is off.
    """

    kind: str
    name: str
    shard: int
    read: str
    last: str
    backlog: int
    lost: str | None


def lag(checkpoint: str, server: RedisOptions) -> list[ShardLag]:
    """Return what a query has not read yet, by stream and shard; nothing of a stream whose deletion it has logged.

    Args:
        checkpoint: the folder or URI that is the query's `checkpointLocation`.
        server: the server that it reads from. The prefix is that of the checkpoint.

    Raises:
        InvalidInput: the folder is not a checkpoint, or that of a query without delayq's streams.
        ServerError: the server does not answer.
    """
    found = [each for stream in _streams(checkpoint) for each in _of_stream(*stream, server)]
    if not found:
        raise InvalidInput(f"{shown(checkpoint)} belongs to a query that reads no ledger and no topic of delayq")
    return found


def _streams(checkpoint: str) -> Iterator[tuple[Source, Offsets, bool]]:
    """Yield the streams of a checkpoint, how far complete batches have read them, and whether they were gone."""
    folder = checkpoint.rstrip("/")
    begun, done = (_numbers(f"{folder}/{name}") for name in ("offsets", "commits"))
    if not begun:
        raise InvalidInput(f"{shown(checkpoint)} is not the checkpoint of a query, or the query has not begun yet")
    complete = begun & done
    lines = object_store.read_bytes(f"{folder}/offsets/{max(complete or begun)}").splitlines()
    for stored in map(_decoded, lines):
        for each in stored.get("streams", {"": stored}).values():
            if each.get("format") != at.FORMAT:
                continue
            source = Source(each["kind"], each["prefix"], each["name"])
            first = None if complete else at.begun(source, each)
            yield source, at.load(source, each) if first is None else first, at.GONE in each


def _of_stream(source: Source, offsets: Offsets, was_gone: bool, server: RedisOptions) -> Iterator[ShardLag]:
    streams = EntryStreams(server.with_prefix(source.prefix).options(**{source.kind: source.name}), pa.schema([]))
    with streams.topic() as topic:
        for shard, extent in enumerate(topic.execute(partitions.extents)):  # appends nothing, unlike streams.extents
            offset, end = offsets.get(shard, BEGINNING), at.end(extent)
            if was_gone:  # its loss was logged; if it is there again, a batch will read it
                if not extent.first:
                    continue
                offset = at.resumed(offset, extent)
            behind = at.count({shard: offset}, at.ahead({shard: end}, {shard: offset}), {shard: extent})
            lost = at.lost(offset, extent)
            yield ShardLag(source.kind, source.name, shard, offset.id, end.id, behind, lost)


def _numbers(folder: str) -> set[int]:
    return {int(name) for name in object_store.names(folder) if name.isdigit()}


def _decoded(line: bytes) -> dict[str, Any]:
    """Return a line of the record of a batch as an offset; nothing if it is another source's, or Spark's own."""
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) else {}
