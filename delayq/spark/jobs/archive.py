"""The job `archive`: the ledger of a queue in Parquet, for longer than Redis keeps it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from delayq.errors import InvalidInput
from delayq.lake.shown_path import shown
from delayq.log import log
from delayq.model.validation import check_queue_name
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable, queues_of
from delayq.spark.archiving.compaction import recover
from delayq.spark.archiving.gaps import Loss, OnLoss, in_table, noting_losses, with_remedy
from delayq.spark.archiving.locks import exclusive_lock
from delayq.spark.archiving.streaming import AppendQuery, OnBatch, ignore, run
from delayq.spark.redis_options import RedisOptions

TABLE = "events"
MOST = 500_000
EVERY = 60.0  # seconds: each batch writes at least one file
COLUMNS = (
    "queue string, shard int, entry string, id string, event string, at timestamp, attempt int, due_at timestamp, "
    "late double, consumer string, reason string, date date"
)
"""The columns of the table, as `events` returns it: those of the ledger, and the day of `at` in UTC."""

SCHEMA = pa.schema(
    [
        ("shard", pa.int32()),
        ("entry", pa.string()),
        ("id", pa.string()),
        ("event", pa.string()),
        ("at", pa.timestamp("us", "UTC")),
        ("attempt", pa.int32()),
        ("due_at", pa.timestamp("us", "UTC")),
        ("late", pa.float64()),
        ("consumer", pa.string()),
        ("reason", pa.string()),
    ]
)
"""The columns of its files."""

KEY = ("shard", "entry")


def warn(loss: Loss) -> None:
    """Log the entries that an archive lacks."""
    log.warning("entries lost before archiving", **loss._asdict())


def archive(
    spark: SparkSession,
    server: RedisOptions,
    queues: Sequence[str],
    path: str,
    *,
    most: int = MOST,
    follow: bool = False,
    every: float = EVERY,
    stop: threading.Event | None = None,
    tell: OnBatch = ignore,
    skip_lost: bool = False,
    tell_loss: OnLoss = warn,
) -> DataFrame:
    """Add new entries of queues' ledgers to their archive, which holds each entry exactly once for any reader.

    The archive is ``PATH/events/queue=…/date=…/*.parquet``, by the day in UTC. The job may be killed at any point; the
    next run continues.

    Args:
        path: the folder of the archive; several runs and queues share it.
        most: the most entries of a queue in a batch, which are in memory together.
        follow: whether to continue with new entries until `stop` is set; otherwise the job ends when everything that
            was there at the start is archived.
        every: seconds between batches, if it follows.
        stop: set it to end the run; the next run completes a batch in progress.
        tell: called with each finished batch.
        skip_lost: if a ledger dropped entries before they were archived, continue from the oldest one that exists, and
            record the missing ones in ``PATH/lost/queue=…/*.parquet``.
        tell_loss: called with each of these losses.

    Returns:
        The archive of these queues, as `events`.

    Raises:
        InvalidInput: a queue keeps no ledger.
        LakeMismatch: another process is archiving one of the queues here, or the archive's own records are gone.
        DataLost: a ledger dropped entries before they were archived, and `skip_lost` is off.
    """
    if most < 1:
        raise InvalidInput(f"a batch of {most} entries is too small: give 1 or more")
    stop = stop or threading.Event()
    trigger = {"processingTime": f"{every} seconds"} if follow else {"availableNow": True}
    tables = [table_of(path, queue) for queue in dict.fromkeys(queues)]
    for table in tables:
        check_ledger(server, table.queue)
    with ExitStack() as locks:
        for table in tables:
            locks.enter_context(
                exclusive_lock(f"{table.work}/archiving.lock", f"archiving queue {table.queue} to {shown(path)}")
            )
            recover(table)
        # Queues that are followed run side by side. Otherwise one after the other, as each has a batch in memory.
        for group in [tables] if follow else [[table] for table in tables]:
            if stop.is_set():
                break
            telling = [
                noting_losses(server, table, partial(in_table, table), tell, tell_loss) if skip_lost else tell
                for table in group
            ]
            appending = [AppendQuery(table, each) for table, each in zip(group, telling, strict=True)]
            frames = [_reading(spark, server, table.queue, most, fails=not skip_lost) for table in group]
            with with_remedy(path, "archived"):
                run(
                    [each.start(read.writeStream, **trigger) for each, read in zip(appending, frames, strict=True)],
                    appending,
                    stop,
                )
    return events(spark, path, [table.queue for table in tables])


def events(spark: SparkSession, path: str, queues: Sequence[str] | None = None) -> DataFrame:
    """Return an archive: one row per entry of a ledger, with `COLUMNS`, for all queues or some.

    It first completes what a killed compaction left unfinished.
    """
    if not folders.names(f"{path}/{TABLE}"):
        return spark.createDataFrame([], COLUMNS)
    for table in tables_of(path):
        recover(table)
    folder = folders.for_spark(f"{path}/{TABLE}")
    frame = (
        spark.read.schema(COLUMNS)
        .option("basePath", folder)
        .parquet(folder)
        .select(*(column.split()[0] for column in COLUMNS.split(", ")))
    )
    return frame if queues is None else frame.where(frame.queue.isin(*queues))


def table_of(path: str, queue: str) -> AppendTable:
    """Return a queue's part of an archive."""
    return AppendTable(path.rstrip("/"), TABLE, check_queue_name(queue), "at", SCHEMA, KEY)


def tables_of(path: str) -> list[AppendTable]:
    """Return the parts of an archive."""
    return [table_of(path, queue) for queue in queues_of(path)]


def check_ledger(server: RedisOptions, name: str) -> None:
    """Raise InvalidInput if a queue keeps no ledger and has none from before."""
    with server.queue(name) as queue:
        if queue.configuration().events is None and not queue.events.length():
            raise InvalidInput(f"queue {name} keeps no ledger: switch it on with `delayq configure {name} --events`")


def _reading(spark: SparkSession, server: RedisOptions, queue: str, most: int, fails: bool) -> DataFrame:
    options = server.options(events=queue, maxEntriesPerTrigger=most, failOnDataLoss=fails)
    return spark.readStream.format("delayq").options(**options).load()
