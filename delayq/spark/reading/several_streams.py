"""Read several ledgers or topics as they grow, in one query."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from delayq.errors import ServerError
from delayq.log import log
from delayq.model.positions import order
from delayq.spark.reading import offsets as at
from delayq.spark.reading.offsets import Source
from delayq.spark.reading.options import SourceOptions, report_missing, switch
from delayq.spark.reading.several import Names, OfOne
from delayq.spark.reading.streams import StreamReader, limit_of
from delayq.spark.reading.trigger_limits import TriggerLimits
from delayq.spark.redis_options import RedisOptions

LOOK_SECONDS = 60.0
"""Between two searches for new names that match a pattern: each scans the names of all keys."""

KEPT_OPEN = 32
"""How many connections the driver keeps open between two batches, one for each stream; with more streams, none."""


class SeveralStreams(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The entries of several streams, each in exactly one batch; for each of them as in `StreamReader`.

    A stream that begins to match the pattern while the query runs is read from its first entry, and so is one that is
    added to the list of a query with a checkpoint. One that is left out keeps its place in the checkpoint. One that
    matches the pattern but is not found is still read, so that a deleted stream counts as lost. With the option
    `failOnDataLoss` off, it is marked as gone instead: it does not count as lost again, also if the option is on later.

    Args:
        schema: the wanted columns.
    """

    def __init__(self, names: Names, options: SourceOptions, schema: pa.Schema) -> None:
        self._names = names
        self._options = options
        self._schema = schema
        self._server = RedisOptions.of(options)
        self._limits = TriggerLimits(options)
        self._must_exist = switch(options, "failOnMissing", False)
        self._fails = switch(options, "failOnDataLoss", True)
        self._readers: dict[str, StreamReader] = {}
        self._beginnings: dict[str, dict[str, Any]] = {}
        self._found: list[str] = []
        self._look_at = 0.0
        self._until: list[str] | None = None
        self._report: dict[str, Any] | None = None
        for name in names.listed:
            self._of(name)  # wrong options fail now

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's name, as those below
        """Return where a new query begins."""
        return self._dump({name: self._of(name).initialOffset() for name in self._search()})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return how much a batch may read."""
        return limit_of(self._limits)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Note what is there now, as this query ends with it."""
        self._until = list(self._search())
        for name in self._until:
            self._of(name).prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return how far the next batch goes."""
        stored = self._load(start)
        names, gone = self._names_after(stored)
        starts = {name: self._place(name, stored) for name in names}
        ends = {name: self._of(name).latestOffset(starts[name], ReadAllAvailable()) for name in names}
        behind = {name: self._of(name).taken for name in names}
        if self._until is None and self._limits.holds_back(sum(behind.values())):
            ends = {}
        elif isinstance(limit, ReadMaxRows) and sum(behind.values()) > limit.max_rows:
            ends = self._within(limit.max_rows, {name: starts[name] for name in names if behind[name]})
        backlogs = {name: behind[name] - (self._of(name).taken if name in ends else 0) for name in names}
        self._report = {"source": str(self._names), "backlog": sum(backlogs.values()), "backlogs": backlogs}
        self._save_connections()
        reached = {name: end for name, end in ends.items() if end != starts[name]}
        if not reached:
            return start
        return self._dump(stored | starts | reached | {name: self._marked(name, stored[name]) for name in gone})

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return what the progress of a query shows as `latestOffset`: the entries left after the batch, by name."""
        return self._report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Divide a batch among tasks."""
        starts = self._load(start)
        found: list[InputPartition] = []
        for name, last in self._load(end).items():
            if at.GONE in last:
                continue
            first = self._place(name, starts)
            if first != last:
                found += [OfOne(name, part) for part in self._of(name).partitions(first, last)]
        self._save_connections()
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the entries of one of these parts."""
        assert isinstance(partition, OfOne)
        return self._of(partition.name).read(partition.value)

    def stop(self) -> None:
        """Close the connections."""
        for reader in self._readers.values():
            reader.stop()

    def _of(self, name: str) -> StreamReader:
        if name not in self._readers:
            self._readers[name] = StreamReader(self._names.of_one(self._options, name), self._schema)
        return self._readers[name]

    def _search(self) -> list[str]:
        """Return the names, found again from time to time; a query that knows some does not fail if that does."""
        if time.monotonic() < self._look_at:
            return self._found
        try:
            self._found = self._names.found(self._server)
        except ServerError as error:
            if not self._found:
                raise
            log.warning("search for streams failed", what=str(self._names), error=str(error))
        if not self._found:
            report_missing(str(self._names), self._must_exist)
        self._look_at = time.monotonic() + LOOK_SECONDS
        return self._found

    def _names_after(self, stored: dict[str, Any]) -> tuple[list[str], list[str]]:
        """Return the names to read, and those that are gone: what was found, and what was read before and is not."""
        names = self._search() if self._until is None else self._until
        away = [name for name in stored if name not in names and self._names.has(name)]
        gone = [name for name in away if at.GONE in stored[name] or not self._fails]
        lost = [name for name in away if name not in gone]
        if self._until is None:
            return [*names, *lost], gone
        for name in lost:
            self._of(name).prepareForTriggerAvailableNow()
        self._until += lost
        return self._until, gone

    def _marked(self, name: str, stored: dict[str, Any]) -> dict[str, Any]:
        """Return a place as that of a stream that is gone."""
        self._beginnings.pop(name, None)
        if reader := self._readers.pop(name, None):
            reader.stop()
        if at.GONE in stored:
            return stored
        stream = f"{self._names.option} {name}"
        log.warning("entries lost", stream=stream, what="the stream that matched the pattern was deleted")
        return stored | {at.GONE: True}

    def _within(self, most: int, starts: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Shorten the batch to `most` entries, divided among the streams, those with the oldest position first."""
        reached: dict[str, dict[str, Any]] = {}
        names = sorted(starts, key=lambda name: _oldest(starts[name]))
        for waiting, name in zip(range(len(names), 0, -1), names, strict=True):
            reached[name] = self._of(name).latestOffset(starts[name], ReadMaxRows(-(-most // waiting)))
            most -= self._of(name).taken
            if most <= 0:
                break
        return reached

    def _save_connections(self) -> None:
        if len(self._readers) > KEPT_OPEN:
            self.stop()

    def _place(self, name: str, stored: dict[str, Any]) -> dict[str, Any]:
        """Return where to continue; without a place yet, or if the stream was gone, as it was when first asked."""
        place: dict[str, Any] | None = stored.get(name)
        if place is not None and at.GONE not in place:
            return place
        if name not in self._beginnings:
            self._beginnings[name] = self._of(name).beginning(place)
        return self._beginnings[name]

    def _source_of(self, name: str) -> Source:
        return Source(self._names.option, self._server.prefix, name)

    def _dump(self, streams: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return at.dump_several(self._source_of(""), streams)

    def _load(self, stored: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return at.load_several(self._source_of(""), stored)


def _oldest(stored: dict[str, Any]) -> tuple[int, int]:
    return min((order(offset["id"]) for offset in stored["shards"].values()), default=(0, 0))
