"""Read a ledger or a topic as it grows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from delayq.errors import DataLost
from delayq.log import log
from delayq.model.positions import number_of
from delayq.model.record import Extent
from delayq.operations.topics import partitions
from delayq.spark.reading import offsets as at
from delayq.spark.reading.batch_reader import EntryStreams
from delayq.spark.reading.offsets import BEGINNING, Offset, Offsets
from delayq.spark.reading.options import switch
from delayq.spark.reading.positions import EARLIEST, LATEST, positions
from delayq.spark.reading.stream_partitions import StreamPartition
from delayq.spark.reading.trigger_limits import TriggerLimits
from delayq.topic import Topic

REMEDY = '; to read what is there, continue with .option("failOnDataLoss", "false") or from a new checkpoint'
_GONE = Extent(0, "", "0-0", 0)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One row per entry, from `start` on, each in exactly one batch; a repeated batch has the same entries.

    The entries of a shard come in their order, those of several shards side by side. If entries were trimmed before
    they were read, or another stream has this name, the query fails with DataLost or, with the option `failOnDataLoss`
    off, logs this, leaves them out, and reads the other stream from its beginning. Single records that were deleted
    from a topic may count as trimmed once all earlier ones are trimmed.

    Attributes:
        taken: how many entries the batch has whose end was asked for last.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._streams = EntryStreams(options, schema)
        self._source = self._streams.source
        self._start = positions(options, "start", EARLIEST)
        self._limits = TriggerLimits(options)
        self._fails = switch(options, "failOnDataLoss", True)
        self._until: Offsets | None = None
        self._beginning: Offsets | None = None
        self._report: dict[str, Any] | None = None
        self.taken = 0
        self._open: tuple[ExitStack, Topic] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as those below
        """Return where a new query begins."""
        extents = self._extents(report=True)
        self._start.check_shards(list(extents.values()))
        self._beginning = {shard: self._first(shard, extent) for shard, extent in extents.items()}
        return at.dump(self._source, self._beginning)

    def beginning(self, left: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the place before the first entry that is there, where a stream begins that is added to a query.

        Args:
            left: where the stream was left when it was gone; if the same one is there again, it continues.
        """
        offsets = {} if left is None else at.load(self._source, left)
        found = self._extents().items()
        self._beginning = {shard: at.resumed(offsets.get(shard), extent) for shard, extent in found}
        return at.dump(self._source, self._beginning, since=self._beginning)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch may read."""
        return limit_of(self._limits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now, as this query ends with it."""
        self._until = {shard: at.end(extent) for shard, extent in self._extents().items()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return how far the next batch goes."""
        offsets, extents = at.load(self._source, start), self._extents()
        if self._fails:
            self._look_for_gaps(offsets, extents)
        ends = self._until or {shard: at.end(extent) for shard, extent in extents.items()}
        reached = at.ahead(ends, offsets)
        if self._until is None and self._limits.holds_back(at.count(offsets, reached, extents)):
            reached = {}
        if isinstance(limit, ReadMaxRows):
            reached = self._within(limit.max_rows, reached, offsets)
        self.taken = at.count(offsets, reached, extents)
        self._report = self._progress(offsets | reached, extents)
        if not reached:
            return start  # unchanged, as Spark takes any difference for a batch
        return at.dump(self._source, offsets | reached, since=offsets if offsets == self._beginning else None)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return what the progress of a query shows as `latestOffset`.

        It is the source, its backlog (how many entries are left after the batch), and the end of each shard.
        """
        return self._report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a batch among tasks."""
        topic, extents = self._topic, self._extents()
        first = (
            at.begun(self._source, end) if start != end else None
        )  # a batch that only moves a watermark reads nothing
        offsets, ends = first or at.load(self._source, start), at.load(self._source, end)
        behind = {shard: offsets.get(shard, BEGINNING) for shard in at.ahead(ends, offsets)}
        found: dict[int, list[StreamPartition]] = {}
        for shard in sorted(behind.keys() & extents.keys()):
            begin = at.since(behind[shard], ends[shard])
            count = at.between(begin, ends[shard], extents[shard])
            bounds = f"({begin.id}", ends[shard].id
            found[shard] = self._streams.partitions(topic, shard, len(extents), *bounds, count)
        extents = self._extents()  # last, as the tasks notice what is trimmed from now on
        gone = {shard for shard in behind if at.is_replaced(ends[shard], extents.get(shard, _GONE))}
        self._look_for_gaps({shard: (ends if shard in gone else behind)[shard] for shard in behind}, extents)
        for shard in gone & found.keys():
            del found[shard]  # what is there now belongs to the next batch
        return [each for parts in found.values() for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one of these parts."""
        assert isinstance(partition, StreamPartition)

        def trimmed(entry: str) -> None:
            self._lost(partition.shard, f"some entries from {entry} on were trimmed while they were being read")

        return self._streams.read(partition, trimmed)

    def stop(self) -> None:
        """Close the connection."""
        if self._open is not None:
            self._open[0].close()
            self._open = None

    @property
    def _topic(self) -> Topic:
        if self._open is None:
            stack = ExitStack()
            self._open = stack, stack.enter_context(self._streams.topic())
        return self._open[1]

    def _extents(self, report: bool = False) -> dict[int, Extent]:
        return dict(enumerate(self._streams.extents(self._topic, report)))

    def _first(self, shard: int, extent: Extent) -> Offset:
        start = self._start.of(shard)
        if start == LATEST:
            return at.end(extent)
        return at.before(0 if start == EARLIEST else number_of(start), extent)

    def _progress(self, reached: Offsets, extents: dict[int, Extent]) -> dict[str, Any]:
        ends = {shard: at.end(extent) for shard, extent in extents.items()}
        backlog = at.count(reached, at.ahead(ends, reached), extents)
        return {"source": str(self._streams), "backlog": backlog} | at.dump(self._source, ends)

    def _within(self, most: int, ends: Offsets, offsets: Offsets) -> Offsets:
        """Shorten the batch to `most` entries, divided among the shards."""
        reached: Offsets = {}
        for waiting, (shard, last) in zip(range(len(ends), 0, -1), ends.items(), strict=True):
            offset = at.since(offsets.get(shard, BEGINNING), last)
            entry, passed, extent = self._topic.execute(partitions.skip, shard, offset.id, last.id, -(-most // waiting))
            reached[shard] = at.advanced(offset, last, entry, passed, extent)
            most -= passed
            if most <= 0:
                break
        return reached

    def _look_for_gaps(self, offsets: Offsets, extents: dict[int, Extent]) -> None:
        for shard, offset in offsets.items():
            if what := at.lost(offset, extents.get(shard, _GONE)):
                self._lost(shard, what)

    def _lost(self, shard: int, what: str) -> None:
        if self._fails:
            raise DataLost(f"shard {shard} of {self._streams}: {what}{REMEDY}")
        log.warning("entries lost", stream=str(self._streams), shard=shard, what=what)


def limit_of(limits: TriggerLimits) -> ReadLimit:
    """Return how much a batch may read."""
    return ReadAllAvailable() if limits.most is None else ReadMaxRows(limits.most)
