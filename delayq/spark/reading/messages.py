"""Read the messages of a queue: one row per message."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.model.placement import STATES, Row, State
from delayq.operations import partitions as ranges
from delayq.queue import Queue
from delayq.spark.reading.options import bound_ms, chosen, report_missing, required, switch, texts, whole
from delayq.spark.reading.pages import FIELDS, StatePage
from delayq.spark.reading.schema import column_names, gathered
from delayq.spark.redis_options import RedisOptions

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
        self._states = chosen(options, "states", STATES, states)
        self._after = -math.inf if after is None else after
        self._before = math.inf if before is None else before
        self._ids = texts(options, "ids")
        self._partitions = whole(options, "partitions", MOST_PARTITIONS)
        self._must_exist = switch(options, "failOnMissing", False)

    def partitions(self) -> Sequence[InputPartition]:
        """Divide the present messages about evenly among tasks; a read by ids takes one task."""
        most, least = (self._partitions, 1) if self._partitions else (PARTITIONS, LEAST_MESSAGES)
        with self._server.queue(self._queue) as queue:
            if queue.execute(ranges.shard_count) is None:
                report_missing(f"queue {self._queue}", self._must_exist)
            if self._ids is not None:
                return [QueuePartition([])]
            parts = queue.execute(ranges.plan, self._states, self._after, self._before, most, least)
            return [QueuePartition(part) for part in parts] or [QueuePartition([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one of these parts."""
        with self._server.queue(self._queue) as queue:
            yield from gathered(self._batches(queue, partition.value))

    def _batches(self, queue: Queue, parts: Sequence[ranges.ScoreRange]) -> Iterator[pa.RecordBatch]:
        if self._ids is not None:
            found = queue.execute(ranges.find, self._ids, self._states, self._after, self._before)
            for shard, state, rows in found:
                yield from self._read(queue, shard, state, rows)
        for part in parts:
            walking = queue.execute(ranges.walk, part)
            while rows := queue.execute(walking.step):
                yield from self._read(queue, part.shard, part.state, rows, walking.are_small)

    def _read(
        self, queue: Queue, shard: int, state: State, rows: list[Row], are_small: bool = False
    ) -> Iterator[pa.RecordBatch]:
        fields = {FIELDS[name] for name in column_names(self._schema) if name in FIELDS}
        while rows:
            page, known = queue.execute(ranges.look_up, shard, state, rows, fields, are_small)
            yield StatePage(queue.name, state, page, known).batch(self._schema)
