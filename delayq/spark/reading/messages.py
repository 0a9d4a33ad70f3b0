"""Reading the messages of a queue: one row per message."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.keys import STATES, State
from delayq.queue import Queue
from delayq.spark.reading import pages, spans
from delayq.spark.reading.columns import gathered
from delayq.spark.reading.options import bound_ms, chosen, whole
from delayq.spark.reading.spans import Span
from delayq.spark.server import Server, required

INSIDE: list[State] = [state for state in STATES if state != "garbage"]
PARTITIONS = 8
MOST_PARTITIONS = 10_000
LEAST_MESSAGES = 1000  # of a task, unless more tasks are asked for: to start one takes as long as to read some hundred


class Stretches(InputPartition):
    """What a task reads."""

    def __init__(self, spans: Sequence[Span]) -> None:
        super().__init__(list(spans))


class Messages(DataSourceReader):
    """One row per message of a queue, as the states hold them while they are read.

    That is no snapshot of one instant. What stays in its place all the while is read exactly once. What moves from one
    state to another, or is given another due time, may be read twice, once with each, or not at all; what is sent after
    the read has begun may be left out, and what has left the queue before it is fetched is left out.

    The bounds `after` and `before` are of the score: the due time of what waits, the end of the lease of what runs, the
    time of death of what is dead; from the first on, until before the second.

    Args:
        schema: the columns that are wanted; only what these need is fetched.
        states: which are read when the option `states` does not say.
    """

    def __init__(self, options: Mapping[str, str], schema: pa.Schema, states: Sequence[State] = INSIDE) -> None:
        self._server = Server.of(options)
        self._queue = required(options, "queue")
        self._schema = schema
        self._states = chosen(options, "states", STATES, states)
        after, before = bound_ms(options, "after"), bound_ms(options, "before")
        self._after = -math.inf if after is None else after
        self._before = math.inf if before is None else before
        self._partitions = whole(options, "partitions", MOST_PARTITIONS)

    def partitions(self) -> Sequence[InputPartition]:
        """Divide what is there now among tasks, about evenly."""
        most, least = (self._partitions, 1) if self._partitions else (PARTITIONS, LEAST_MESSAGES)
        with self._server.queue(self._queue) as queue:
            steps = spans.plan(queue.core, self._states, self._after, self._before, most, least)
            return [Stretches(part) for part in queue.connection.do(steps)] or [Stretches([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one of these parts."""
        with self._server.queue(self._queue) as queue:
            queue.connection.do(queue.core.opened())
            yield from gathered(batch for span in partition.value for batch in self._read(queue, span))

    def _read(self, queue: Queue, span: Span) -> Iterator[pa.RecordBatch]:
        do, core = queue.connection.do, queue.core
        scripts = core.shards[span.shard]
        walk = do(spans.walk(scripts, span))
        while rows := do(spans.page(walk, span)):
            while rows:
                now, rows = rows[: pages.room(core)], rows[pages.room(core) :]
                page = do(pages.look_up(core, scripts, span.state, now, self._schema.names))
                yield page.batch(self._schema)
