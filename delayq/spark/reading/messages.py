"""Read the messages of a queue: one row per message."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.model.placement import STATES, Row, State
from delayq.operations import partitions as ranges
from delayq.queue import Queue
from delayq.spark.reading.filters import Wanted, narrowed
from delayq.spark.reading.options import bound_ms, chosen, report_missing, switch, whole
from delayq.spark.reading.pages import FIELDS, StatePage
from delayq.spark.reading.schema import column_names, gathered
from delayq.spark.redis_options import RedisOptions, required

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

INSIDE: list[State] = [state for state in STATES if state != "garbage"]
PARTITIONS = 8
MOST_PARTITIONS = 10_000
LEAST_MESSAGES = 1000  # in a task, unless more tasks are requested: starting one takes as long as reading some hundred


class QueuePartition(InputPartition):
    """The part that a task reads."""

    def __init__(self, ranges: Sequence[ranges.ScoreRange]) -> None:
        super().__init__(list(ranges))


class MessagesReader(DataSourceReader):
    """One row per message of a queue, as the states hold them while they are read.

    This is not a snapshot of one instant. Messages that stay in place are read exactly once. Messages that move from
    one state to another, or get another due time, may be read twice (once with each) or not at all. Messages sent after
    the read began may be left out, and messages that leave the queue before they are fetched are left out.

    The bounds `after` (inclusive) and `before` (exclusive) apply to the score: the due time of a waiting message, the
    end of the lease of a running one, the time of death of a dead one.

    Args:
        schema: the wanted columns; only what these need is fetched.
        states: the states to read without the option `states`.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema, states: Sequence[State] = INSIDE) -> None:
        self._server = RedisOptions.of(options)
        self._queue = required(options, "queue")
        self._schema = schema
        after, before = bound_ms(options, "after"), bound_ms(options, "before")
        self._wanted = Wanted(
            chosen(options, "states", STATES, states),
            -math.inf if after is None else after,
            math.inf if before is None else before,
        )
        self._partitions = whole(options, "partitions", MOST_PARTITIONS)
        self._must_exist = switch(options, "failOnMissing", False)

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the present messages about evenly among tasks; a read by ids takes one task."""
        states, after, before, ids = self._wanted
        most, least = (self._partitions, 1) if self._partitions else (PARTITIONS, LEAST_MESSAGES)
        with self._server.queue(self._queue) as queue:
            if queue.execute(ranges.shard_count) is None:
                report_missing(f"queue {self._queue}", self._must_exist)
            if ids is not None or not states:
                return [QueuePartition([])]
            parts = queue.execute(ranges.plan, states, after, before, most, least)
            return [QueuePartition(part) for part in parts] or [QueuePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one of these parts."""
        with self._server.queue(self._queue) as queue:
            yield from gathered(self._batches(queue, partition.value))

    def _batches(self, queue: Queue, parts: Sequence[ranges.ScoreRange]) -> Iterator[pa.RecordBatch]:
        states, after, before, ids = self._wanted
        if ids is not None:
            for shard, state, rows in queue.execute(ranges.find, ids, states, after, before):
                yield from self._read(queue, shard, state, rows)
        for part in parts:
            walking = queue.execute(ranges.walk, part)
            while rows := queue.execute(walking.step):
                yield from self._read(queue, part.shard, part.state, rows)

    def _read(self, queue: Queue, shard: int, state: State, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        fields = {FIELDS[name] for name in column_names(self._schema) if name in FIELDS}
        while rows:
            page, known = queue.execute(ranges.look_up, shard, state, rows, fields)
            yield StatePage(queue.name, state, page, known).batch(self._schema)


class FilteredMessagesReader(MessagesReader):
    """The same, for rows that pass the query's filters on `state`, `id` and the times of the score.

    Spark 4.1 to 4.3 keep one plan of a read for all queries on a DataFrame, so one query's filter would also remove
    rows from the others. So users must ask for this reader.
    """

    def pushFilters(self, filters: Iterable[Filter]) -> Iterator[Filter]:  # noqa: N802  # Spark's name
        """Take over the filters that bound the read; yield those that Spark must apply."""
        for condition in filters:
            wanted = narrowed(self._wanted, condition)
            if wanted is None:
                yield condition
            else:
                self._wanted = wanted


def messages_reader(
    options: Mapping[str, str], schema: pa.Schema, states: Sequence[State] = INSIDE
) -> DataSourceReader:
    """Return the reader for the option `pushFilters`."""
    kind = FilteredMessagesReader if switch(options, "pushFilters", False) else MessagesReader
    return kind(options, schema, states)
