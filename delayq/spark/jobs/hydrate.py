"""hydrate: the tasks of a cluster load the hours of a lake that fall due soon."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from delayq.lake import hydrate as lake_hydrate
from delayq.lake.hydrate import KEEP, HourLoaded
from delayq.lake.layout import File, Loaded
from delayq.lake.load import ChangeSnapshots, LoadTask, load
from delayq.lake.queue_folder import QueueFolder, queues
from delayq.model.units import Seconds, timestamp_ms
from delayq.queue import Queue
from delayq.spark.errors import translated
from delayq.spark.redis_options import RedisOptions

COLUMNS = (
    "queue string, hour string, file string, rows bigint, sent bigint, existing bigint, cancelled bigint, void bigint, "
    "held bigint"
)
TASK_ROWS = 20_000


def hydrate(
    spark: SparkSession,
    lake: str,
    server: RedisOptions,
    horizon: Seconds,
    queue: str | None = None,
    *,
    now: dt.datetime | None = None,
    until: dt.datetime | None = None,
    keep: Seconds | None = KEEP,
) -> DataFrame:
    """Move the hours of a lake that begin within the horizon into Redis.

    Args:
        queue: None for all queues in the lake.
        now: the time to use, also for the scripts; None for the server's. For rehearsals.
        horizon, until, keep: as in `delayq.lake.hydrate.hydrate`.

    Returns:
        one row per file that was loaded: queue, hour, file, rows, and how many of these were sent, existing, cancelled,
        void and held.

    Raises:
        LakeMismatch: as in `delayq.lake.hydrate.hydrate`.
        ServerError: a task cannot reach Redis; the next run completes the rest.
    """

    def hydrate_one(name: str) -> list[HourLoaded]:
        tasks = TaskLoader(server, lake, name, now)
        load_files = partial(tasks.run, spark)
        with tasks.queue() as opened:
            return lake_hydrate.hydrate(opened, lake, horizon, now=now, until=until, keep=keep, load_files=load_files)

    done = lake_hydrate.hydrate_each([queue] if queue is not None else queues(lake), hydrate_one)
    rows = [(each.queue, each.hour, *(getattr(each.file, name) for name in _count_names())) for each in done]
    return spark.createDataFrame(rows, COLUMNS)


def _count_names() -> list[str]:
    return [column.split()[0] for column in COLUMNS.split(", ")[2:]]


MOST_SECONDS = 60.0  # of waiting: with `load.STILL_MS`, much less than a change holds its mark


class TaskLoader:
    """Loads files of one queue. It is sent to the tasks."""

    FORMAT = "delayq-loads"

    def __init__(self, server: RedisOptions, lake: str, queue: str, now: dt.datetime | None) -> None:
        self._server = server.hurried(MOST_SECONDS)
        self._queue = queue
        self._folder = QueueFolder(lake, queue)
        self._now_ms = None if now is None else timestamp_ms(now, "now")

    def queue(self) -> Queue:
        """Return the queue, which uses the given time."""
        now_ms = self._now_ms
        return self._server.queue(self._queue, **({} if now_ms is None else {"clock": lambda: now_ms}))

    def run(self, spark: SparkSession, tasks: Sequence[LoadTask]) -> list[Loaded]:
        """Load files, several of an hour in one Spark task; return the results in their order."""
        spark.dataSource.register(self._source(tasks))
        with translated():
            rows = spark.read.format(self.FORMAT).load().collect()
        results = {(row["hour"], row["file"]): row["result"] for row in rows}
        return [msgspec.json.decode(results[task.hour, task.file], type=Loaded) for task in tasks]

    def load(self, tasks: Sequence[LoadTask]) -> Iterator[tuple[str, str, str]]:
        """Load files, and yield the result of each."""
        with self.queue() as queue:
            snapshots = ChangeSnapshots(queue, self._folder)
            for task in tasks:
                loaded = load(queue, self._folder, task, snapshots)
                yield task.hour, task.file, msgspec.json.encode(loaded).decode()

    def _source(self, tasks: Sequence[LoadTask]) -> type[DataSource]:
        """Return a format whose read is the load, so that its arguments and secrets appear in no plan."""

        class Reader(DataSourceReader):
            def partitions(self) -> list[InputPartition]:
                return [InputPartition(some) for some in _divided(tasks)]

            def read(self, partition: InputPartition) -> Iterator[tuple[str, str, str]]:
                yield from loads.load(partition.value)

        class Source(DataSource):
            @classmethod
            def name(cls) -> str:
                return TaskLoader.FORMAT

            def schema(self) -> str:
                return "hour string, file string, result string"

            def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # Spark's
                return Reader()

        loads = self
        return Source


def _divided(tasks: Sequence[LoadTask]) -> Iterator[list[LoadTask]]:
    """Divide files among Spark tasks: files of an hour share a task until they are large enough for one."""
    for _, of_hour in groupby(tasks, key=lambda task: task.hour):
        some: list[LoadTask] = []
        for task in of_hour:
            some.append(task)
            if sum(_rows(each) for each in some) >= TASK_ROWS:
                yield some
                some = []
        if some:
            yield some


def _rows(task: LoadTask) -> int:
    file = File.read(task.file)
    return 0 if file is None else file.rows
