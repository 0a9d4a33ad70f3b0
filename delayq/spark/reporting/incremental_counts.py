"""Count the events of a queue batch by batch; minutes that are over are counted once and for all.

    PATH/_work/queue=…/tally/41/open.parquet      deliveries that had not ended at the end of batch 41
                                waiting.parquet   counts of minutes that were not over, which its schema names

A batch begins with what the previous one left. As a batch may be repeated, these files stay until it is done.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from delayq.errors import LakeMismatch
from delayq.lake import object_store
from delayq.lake.object_store import place, write_table
from delayq.lake.shown_path import shown
from delayq.log import log
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable
from delayq.spark.archiving.gaps import ShardEntries
from delayq.spark.reporting import counts as counting

LATEST = dt.timedelta(seconds=10)
"""An event may come this much later than newer ones, as shards have their own clocks."""

LONGEST = dt.timedelta(days=7)
"""How long to keep a delivery: an ack or nack after this has no time, like one whose delivery is not in the ledger."""

MINUTE = dt.timedelta(minutes=1)
BEGINNING = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
OPEN = "queue string, shard int, entry string, id string, event string, at timestamp, attempt int, late double"

_OPEN, _WAITING = "open.parquet", "waiting.parquet"
_OVER = b"over"


class IncrementalCounts:
    """Counts the events of a queue."""

    def __init__(self, table: AppendTable) -> None:
        self._there: Mapping[int, ShardEntries] = {}
        self._queue = table.queue
        self._folder = f"{table.work}/tally"
        self._commits = f"{table.checkpoint}/commits"

    def check(self) -> None:
        """Refuse to continue after batches that left nothing here, such as those of a version without tallies.

        Raises:
            LakeMismatch: the last batch left nothing.
        """
        if folders.names(self._commits) and not folders.names(self._folder):
            raise LakeMismatch(
                f"{self._folder} has nothing to continue from after the last batch of {self._commits}: restore it, or "
                "begin in another folder"
            )

    @contextmanager
    def __call__(self, frame: DataFrame, number: int) -> Iterator[DataFrame]:
        """Yield the counts of the minutes that are over with a batch, with `COLUMNS`."""
        over = self._begin(number)
        events = frame.persist()
        until = self._note(events, over)
        left_open = self._read(frame.sparkSession, number, _OPEN, OPEN).withColumn("is_new", f.lit(False))
        known = events.withColumn("is_new", f.lit(True)).unionByName(left_open, allowMissingColumns=True)
        new = counting.timed(known).where(f.col("is_new") & (f.col("at") >= over))
        waiting = self._read(frame.sparkSession, number, _WAITING, counting.COLUMNS)
        counted = counting.summed(counting.counts(new).unionByName(waiting)).persist()
        try:
            unended = counting.unended(known).where(f.col("at") >= until - LONGEST).select(*_names(OPEN))
            write_table(self._path(number, _OPEN), unended.toArrow())
            left = counted.where(f.col("minute") >= until).toArrow()
            write_table(self._path(number, _WAITING), left.replace_schema_metadata({_OVER: until.isoformat()}))
            yield counted.where(f.col("minute") < until)
        finally:
            counted.unpersist()
            events.unpersist()

    def _begin(self, number: int) -> dt.datetime:
        """Remove what is not needed, and return until when minutes are over."""
        for name in folders.names(self._folder):
            if int(name) < number - 1:
                folders.remove_folder(f"{self._folder}/{name}")
        if number == 0:
            return BEGINNING
        path = self._path(number - 1, _WAITING)
        if not object_store.exists(path):
            raise LakeMismatch(
                f"{shown(path)} is gone, with which batch {number} begins: restore it, or begin in another folder"
            )
        system, inner = place(path)
        return dt.datetime.fromisoformat(pq.read_schema(inner, filesystem=system).metadata[_OVER].decode())

    def found(self, _: int) -> Mapping[int, ShardEntries]:
        """Return which events the last batch had, by shard."""
        return self._there

    def _note(self, events: DataFrame, over: dt.datetime) -> dt.datetime:
        """Note the events of a batch, and return until when minutes are over with them."""
        place_of = f.struct(*counting.place_of("entry"))
        late = f.count(f.when(f.col("at") < over, 1))
        shards = events.groupBy("shard").agg(f.count("*"), f.min_by("entry", place_of), f.max("at"), late).collect()
        self._there = {shard: ShardEntries(rows, first) for shard, rows, first, _, _ in shards}
        if count := sum(row[4] for row in shards):
            log.warning("late events not counted", queue=self._queue, count=count)
        last = max((row[3].astimezone(dt.UTC) for row in shards), default=BEGINNING) - LATEST
        return max(over, last - (last - BEGINNING) % MINUTE)

    def _read(self, spark: SparkSession, number: int, name: str, columns: str) -> DataFrame:
        """Return what the previous batch left."""
        if number == 0:
            return spark.createDataFrame([], columns)
        return spark.read.schema(columns).parquet(folders.for_spark(self._path(number - 1, name)))

    def _path(self, number: int, name: str) -> str:
        return f"{self._folder}/{number}/{name}"


def _names(columns: str) -> list[str]:
    return [column.split()[0] for column in columns.split(", ")]
