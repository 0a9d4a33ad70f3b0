"""Read small tables in a single task: the counts of a queue, and its schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from delayq.model.placement import STATES
from delayq.model.queue_stats import QueueStats
from delayq.operations.partitions import shard_count
from delayq.queue import Queue
from delayq.spark.reading.cells import value_cell
from delayq.spark.reading.options import report_missing, required, switch
from delayq.spark.reading.schema import RUNS
from delayq.spark.redis_options import RedisOptions

STATS = {
    "queue": "string",
    **dict.fromkeys((*STATES, "scheduled", "due", "retrying", *QueueStats.COUNTERS), "bigint"),
    "at": "timestamp",
    "paused_since": "timestamp",
    "paused_until": "timestamp",
    "next_due_at": "timestamp",
    "oldest_due_at": "timestamp",
    "lateness": "map<bigint,bigint>",
    "handler_time": "map<bigint,bigint>",
    "slots_missed": "bigint",
    "tasks": RUNS,
}
SCHEDULES = {
    "name": "string",
    "queue": "string",
    "when": "string",
    "timezone": "string",
    "missed": "string",
    "grace": "double",
    "start": "timestamp",
    "end": "timestamp",
    "jitter": "double",
    "paused": "boolean",
    "finished": "boolean",
    "next_at": "timestamp",
    "next_id": "string",
    "payload": "string",
    "max_retries": "int",
    "task": "string",
}


class _SinglePartitionReader(DataSourceReader):
    """Rows of a queue that one call returns."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._server = RedisOptions.of(options)
        self._queue = required(options, "queue")
        self._schema = schema
        self._must_exist = switch(options, "failOnMissing", False)

    def partitions(self) -> Sequence[InputPartition]:
        """Return the only one."""
        return [InputPartition(self._queue)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002  # there is one
        """Yield the rows."""
        with self._server.queue(self._queue) as queue:
            if queue.execute(shard_count) is None:
                report_missing(f"queue {self._queue}", self._must_exist)
            rows = self._rows(queue)
        cells = [pa.array([row[field.name.lower()] for row in rows], field.type) for field in self._schema]
        yield pa.RecordBatch.from_arrays(cells, schema=self._schema)

    def _rows(self, queue: Queue) -> list[dict[str, Any]]:
        raise NotImplementedError


class StatsReader(_SinglePartitionReader):
    """One row with the counts of `Queue.stats`."""

    def _rows(self, queue: Queue) -> list[dict[str, Any]]:
        row = msgspec.structs.asdict(queue.stats())
        row["tasks"] = {name: msgspec.structs.asdict(runs) for name, runs in row["tasks"].items()}
        return [row | {name: list(row[name].items()) for name in ("lateness", "handler_time", "tasks")}]


class SchedulesReader(_SinglePartitionReader):
    """One row per schedule, as `Queue.schedules.list` returns it. A payload of raw bytes is null."""

    def _rows(self, queue: Queue) -> list[dict[str, Any]]:
        rows = [msgspec.structs.asdict(each) for each in queue.schedules.list()]
        return [each | {"payload": value_cell(each["payload"])} for each in rows]
