"""Read the present contents of a ledger, one row per event, or of a topic, one row per record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.errors import InvalidInput
from delayq.model import packed_events
from delayq.model.record import Extent
from delayq.operations.topics import partitions, publish
from delayq.spark.reading.ledger_rows import LedgerRows
from delayq.spark.reading.offsets import BEGINNING, Source
from delayq.spark.reading.options import called, report_missing, required, switch, whole
from delayq.spark.reading.positions import EARLIEST, LATEST, positions
from delayq.spark.reading.records import Records
from delayq.spark.reading.schema import gathered
from delayq.spark.reading.stream_partitions import OnTrimmed, StreamPartition
from delayq.spark.redis_options import RedisOptions
from delayq.topic import Topic

PARTITIONS = 8
MOST_PARTITIONS = 10_000
MOST_ENTRIES = 10**12
LEAST_ENTRIES = 5000  # in a task, unless more tasks are requested: starting one takes as long as reading some hundred

_BOUNDS = {EARLIEST: "-", LATEST: "+"}


class EntryStreams:
    """The streams of a ledger or of a topic, one a shard, and the columns of their entries. It is sent to the tasks.

    Args:
        schema: the wanted columns.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._server = RedisOptions.of(options)
        self._is_ledger = "events" in options
        self.name = required(options, "events" if self._is_ledger else "topic")
        self.source = Source("events" if self._is_ledger else "topic", self._server.prefix, self.name)
        self._schema = schema
        self._partitions = whole(options, "partitions", MOST_PARTITIONS)
        self._must_exist = switch(options, "failOnMissing", False)

    def __str__(self) -> str:
        return f"the ledger of queue {self.name}" if self._is_ledger else f"topic {self.name}"

    @contextmanager
    def topic(self) -> Iterator[Topic]:
        """Connect, and close the connection at the end."""
        if self._is_ledger:
            with self._server.queue(self.name) as queue:
                yield queue.events
        else:
            with self._server.topic(self.name) as topic:
                yield topic

    def extents(self, topic: Topic, report: bool = False) -> list[Extent]:
        """Return the extents of the shards; due records of a topic are appended first, as for any other reader.

        Args:
            report: whether to report if nothing was ever appended, as the name may be mistyped.
        """
        if not self._is_ledger:
            topic.execute(publish.append_all_due)
        extents = topic.execute(partitions.extents)
        if report and all(extent.last == BEGINNING.id for extent in extents):
            report_missing(str(self), self._must_exist)
        return extents

    def partitions(
        self, topic: Topic, shard: int, shards: int, low: str, high: str, count: int
    ) -> list[StreamPartition]:
        """Divide the entries of a shard between two bounds among tasks.

        Args:
            shards: how many shards share the tasks.
            count: how many entries there are, at most.
        """
        wanted = self._partitions or min(PARTITIONS, shards * (1 + count // LEAST_ENTRIES))
        ranges = topic.execute(partitions.divide, shard, low, high, -(-wanted // shards))
        return [StreamPartition(shard, *each, low, high) for each in ranges]

    def read(self, partition: StreamPartition, trimmed: OnTrimmed) -> Iterator[pa.RecordBatch]:
        """Yield the entries of a partition."""
        entries = (LedgerRows if self._is_ledger else Records)(self.name, self._schema)
        with self.topic() as topic:
            pages = partition.pages(topic, trimmed)
            if self._is_ledger:
                pages = (packed_events.events(page, partition.low, partition.high) for page in pages)
            yield from gathered(entries.batch(partition.shard, page) for page in pages if page)
        entries.tell()


class EntriesReader(DataSourceReader):
    """One row per entry, from `start` to `end`, both inclusive: see `positions`.

    Entries that are trimmed before a task reads them are left out.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._streams = EntryStreams(options, schema)
        self._start, self._end = positions(options, "start", EARLIEST), positions(options, "end", LATEST)
        for name, empty in (("start", LATEST), ("end", EARLIEST)):
            if empty in (self._start if name == "start" else self._end).all():
                raise InvalidInput(f"a batch with {called(options, name)} {empty} is empty: leave the option out")

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the present entries among tasks."""
        found: list[InputPartition] = []
        with self._streams.topic() as topic:
            extents = self._streams.extents(topic, report=True)
            for bound in (self._start, self._end):
                bound.check_shards(extents)
            for shard, extent in enumerate(extents):
                low, high = (_BOUNDS.get(each, each) for each in (self._start.of(shard), self._end.of(shard)))
                found += self._streams.partitions(topic, shard, len(extents), low, high, extent.length)
        return found or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one of these parts."""
        if isinstance(partition, StreamPartition):
            yield from self._streams.read(partition, trimmed=lambda _: None)
