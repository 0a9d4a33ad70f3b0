"""defer: write a table of messages to a lake, where they stay until shortly before they are due."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from delayq.lake import layout
from delayq.lake.layout import HOUR_MS, DeferredRow, DeferRun, File
from delayq.lake.object_store import whole
from delayq.lake.queue_folder import QueueFolder
from delayq.model.envelope import MAX_PAYLOAD_BYTES
from delayq.model.message_ids import new_id
from delayq.model.units import from_ms
from delayq.model.validation import check_queue_name
from delayq.operations.encode import encode_message
from delayq.operations.queue_context import Settings
from delayq.spark.errors import put_aside_by, translated
from delayq.spark.jobs.tables import read_messages
from delayq.spark.writing.ids import Ids
from delayq.spark.writing.rejects import Rejects, forget_rejects
from delayq.spark.writing.rows import Rows
from delayq.spark.writing.sink import TaskEncoder

FILE_ROWS = 100_000
FILE_BYTES = 64 * 1024 * 1024  # of envelopes: a task holds this much in memory, and so does a load
HOUR = "delayq_hour"
COPY = "delayq_copy"
"""How many rows with the same id come before a row."""
COLUMNS = "hour string, file string, rows bigint"


@put_aside_by("rejects=FOLDER")
@translated()
def defer(
    spark: SparkSession,
    table: DataFrame | str,
    lake: str,
    queue: str,
    columns: Mapping[str, str] | None = None,
    *,
    delay: float | None = None,
    table_format: str | None = None,
    options: Mapping[str, str] | None = None,
    payload_format: str = "text",
    run: str | None = None,
    rejects: str | None = None,
    max_payload: int = MAX_PAYLOAD_BYTES,
) -> DataFrame:
    """Write a table of messages to a lake, without Redis. Repeating a run with the same name creates no duplicates.

    If several rows have the same id, only the one that is due first is written.

    Args:
        table, columns, delay, table_format, options, payload_format: as in `delayq.spark.jobs.schedule.schedule`. A
            delay counts from the first start of the run.
        run: names the files, and the ids of rows without one: 1 to 64 letters, digits, dashes, dots and underscores.
            Repeat an interrupted run under its name; it replaces what it left.
        rejects: a folder for rows that cannot be sent, with the reason; without it, they fail the job. `row` and
            `partition` refer to the table sorted by hours.

    Returns:
        one row per file that the run has written: hour, file, rows.

    Raises:
        InvalidInput: a column or an argument is invalid; nothing was written.
        RowRefused: a row cannot be sent, and there is no `rejects`; the run may be repeated under its name.
    """
    run = layout.check_run(new_id() if run is None else run)
    folder = QueueFolder(lake, check_queue_name(queue))
    begun = folder.run(run) or DeferRun(run, time.time_ns() // 1_000_000)
    messages = read_messages(spark, table, columns, delay, table_format, options, payload_format)
    writer = DeferWriter(folder, begun, Rows(messages.schema, payload_format), rejects, max_payload)
    folder.put_run(begun)
    spark.dataSource.register(writer.source())
    _by_hours(messages, begun.created_ms).write.format(DeferWriter.FORMAT).mode("append").save()
    return spark.createDataFrame(_written(folder, run), COLUMNS)


def _by_hours(table: DataFrame, created_ms: int) -> DataFrame:
    """Sort the rows by hour, and number those with one id, in an order that is the same in a rerun."""
    names = table.columns
    content = f.xxhash64(f.to_json(f.struct(*names)))
    dues: list[Column] = []
    if "due_at" in names:
        dues.append(f.unix_millis("due_at"))
    if "delay" in names:
        dues.append(f.lit(created_ms) + f.col("delay").cast("double") * 1000)
    due = f.coalesce(*dues)
    hour = (due / HOUR_MS).try_cast("bigint")  # null without an hour; such rows are refused when written
    copy, first = f.lit(0), [f.col("id")] if "id" in names else []
    if first:
        refused = hour.isNull() | f.col("payload").isNull()
        alone = f.when(f.col("id").isNull(), f.monotonically_increasing_id())
        copy = f.row_number().over(Window.partitionBy("id", alone).orderBy(refused, due, content)) - 1
    return table.withColumns({HOUR: hour, COPY: copy}).repartition(HOUR).sortWithinPartitions(HOUR, *first, content)


def _written(folder: QueueFolder, run: str) -> list[tuple[str, str, int]]:
    done = folder.run(run)
    paths = [path.split("/") for path in done.files] if done else []
    return [(hour, name, file.rows) for hour, name in paths if (file := File.read(name))]


@dataclass
class TaskFiles(WriterCommitMessage):
    """What a task has done."""

    files: list[str]
    repeated: int
    rejected: int


class DeferWriter(DataSourceArrowWriter):
    """Writes a table that is sorted by hours. It is sent to the tasks."""

    FORMAT = "delayq-lake"

    def __init__(self, folder: QueueFolder, run: DeferRun, rows: Rows, rejects: str | None, max_payload: int) -> None:
        self._folder = folder
        self._run = run
        self._rows = rows
        self._rejects = None if rejects is None else whole(rejects)
        self._settings = Settings(max_payload=max_payload)

    def source(self) -> type[DataSource]:
        """Return a format that writes with this, so that its arguments appear in no plan."""

        class Source(DataSource):
            @classmethod
            def name(cls) -> str:
                return DeferWriter.FORMAT

            def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: ARG002  # Spark's
                return defer_writer

        defer_writer = self
        return Source

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskFiles:
        """Write the rows of a task."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        wrote = TaskFiles([], 0, 0)
        rejects = None if self._rejects is None else Rejects(self._rejects, self._rows.schema, partition)
        for hour, parts in groupby(_parts(iterator), key=itemgetter(0)):
            ids = Ids(f"{self._run.run} {hour}", 0)  # an hour is in one task, whose number may differ in a rerun
            task = TaskEncoder(partition, ids, 0, rejects)
            files = _Files(self._folder, self._run.run)
            for _, part in parts:
                firsts = part.filter(pc.equal(part[COPY], 0)).drop_columns([COPY])
                wrote.repeated += part.num_rows - firsts.num_rows
                files.add(self._encoded(task, firsts))
            files.flush()
            wrote.files += files.written
        if rejects is not None:
            wrote.rejected = rejects.count
            rejects.write(self._run.run)
        return wrote

    def _encoded(self, task: TaskEncoder, batch: pa.RecordBatch) -> Iterator[DeferredRow]:
        created_ms = self._run.created_ms
        rows = self._rows.read(batch, task.rows, from_ms(created_ms))
        for each in task.encode(rows, partial(encode_message, max_payload=self._settings.max_payload)):
            due_ms = created_ms + int(each.due) if isinstance(each.due, str) else int(each.due)
            yield DeferredRow(each.id, due_ms, created_ms, each.envelope)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Record what was written, and remove what earlier tries of the run left."""
        wrote = [message for message in messages if isinstance(message, TaskFiles)]
        files = sorted(path for each in wrote for path in each.files)
        repeated, rejected = sum(each.repeated for each in wrote), sum(each.rejected for each in wrote)
        run = DeferRun(self._run.run, self._run.created_ms, "writing", files, repeated, rejected)
        # Before removing files: a reader that misses one then sees its replacement, or that the run has no files.
        self._folder.put_run(run if files else replace(run, state="written"))
        self._remove_all_but(set(files))
        if self._rejects is not None:
            forget_rejects(self._rejects, self._run.run, len(messages))
        self._folder.put_run(replace(run, state="written"))

    def _remove_all_but(self, written: set[str]) -> None:
        for hour in self._folder.hours():
            own = {file.name for file in hour.files.values() if file.writer != file.source == self._run.run}
            left = {name for name in own if f"{hour.name}/{name}" not in written}
            manifest = self._folder.manifest(hour.name) if left and hour.has_manifest else None
            loaded = {each.file for each in [*manifest.loaded, *manifest.loading]} if manifest else set()
            for name in left - loaded:
                self._folder.remove(hour.name, hour.files[name])


class _Files:
    """Writes messages, in the order of their ids, to files of bounded size."""

    def __init__(self, folder: QueueFolder, run: str) -> None:
        self.written: list[str] = []
        self._folder = folder
        self._run = run
        # Of an hour, and of the next one, as parts of a millisecond are rounded up.
        self._rows: dict[str, list[DeferredRow]] = {}
        self._count = self._bytes = 0

    def add(self, rows: Iterator[DeferredRow]) -> None:
        """Take messages, and write a file if there are enough."""
        for row in rows:
            self._rows.setdefault(layout.hour_of(row.due_ms), []).append(row)
            self._count += 1
            self._bytes += len(row.envelope)
            if self._count >= FILE_ROWS or self._bytes >= FILE_BYTES:
                self.flush()

    def flush(self) -> None:
        """Write the remaining messages."""
        for hour, rows in self._rows.items():
            file = self._folder.write(hour, f"{self._run}-{len(self.written)}", rows)
            self.written.append(f"{hour}/{file.name}")
        self._rows = {}
        self._count = self._bytes = 0


def _parts(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int | None, pa.RecordBatch]]:
    """Split batches where an hour ends; yield each part with its hour."""
    for batch in batches:
        start, rows = 0, batch.drop_columns([HOUR])
        for hour, group in groupby(batch[HOUR].to_pylist()):
            count = sum(1 for _ in group)
            yield hour, rows.slice(start, count)
            start += count
