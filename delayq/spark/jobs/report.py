"""The job `report`: figures of queues, from an archive or the ledgers in Redis, and a page that shows them."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from delayq.lake.object_store import write_bytes, write_table
from delayq.lake.shown_path import shown
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable, StoredBatch
from delayq.spark.archiving.gaps import OnLoss, noting_losses, with_remedy
from delayq.spark.archiving.locks import exclusive_lock
from delayq.spark.archiving.streaming import AppendQuery, run
from delayq.spark.errors import translated
from delayq.spark.jobs.archive import check_ledger, events, warn
from delayq.spark.redis_options import RedisOptions
from delayq.spark.reporting import counts as counting
from delayq.spark.reporting.figures import Figures, by_step
from delayq.spark.reporting.incremental_counts import LONGEST, IncrementalCounts
from delayq.spark.reporting.page import page, step_of

TABLE = "counts"
FOLLOW_EVERY = "10 seconds"

SCHEMA = pa.schema(
    [
        ("minute", pa.timestamp("us", "UTC")),
        ("event", pa.string()),
        ("attempt", pa.int32()),
        ("error", pa.string()),
        ("bucket", pa.int64()),
        ("n", pa.int64()),
        ("longest", pa.float64()),
    ]
)
KEY = ("minute", "event", "attempt", "error", "bucket")


def report(
    spark: SparkSession, source: DataFrame | str, *, since: dt.datetime | None = None, until: dt.datetime | None = None
) -> Figures:
    """Return the figures of queues.

    Args:
        source: the path of an archive, or events with its columns, as `ledgers` returns them; they are read once.
        since: leave out earlier events. Deliveries up to a week earlier still give their acks and nacks a time.
        until: leave out events at this time or later.
    """
    found = events(spark, source) if isinstance(source, str) else source
    if until is not None:
        found = found.where(f.col("at") < f.lit(until))
    if since is None:
        return Figures.of(counting.counts(counting.timed(found)).persist())
    timed = counting.timed(found.where(f.col("at") >= f.lit(since) - f.lit(LONGEST)))
    return Figures.of(counting.counts(timed.where(f.col("at") >= f.lit(since))).persist())


def ledgers(spark: SparkSession, server: RedisOptions, queues: Sequence[str]) -> DataFrame:
    """Return the present contents of queues' ledgers: one row per entry.

    Raises:
        InvalidInput: a queue keeps no ledger.
    """
    frames = []
    for queue in dict.fromkeys(queues):
        check_ledger(server, queue)
        frames.append(spark.read.format("delayq").options(**server.options(events=queue)).load())
    return reduce(DataFrame.unionByName, frames)


@translated()
def save(figures: Figures, path: str) -> None:
    """Write figures to a folder: ``figures/NAME.parquet``, one file each, and ``report.html``, which shows them.

    Each file is replaced atomically. The page loads nothing from elsewhere.

    Raises:
        ServerError: a task cannot reach Redis.
        PipelineError: Spark cannot read the source of the figures.
    """
    tables = {name: frame.toArrow() for name, frame in figures.tables().items()}
    step = step_of(tables["minutes"])
    spans = tables["minutes"] if step == 1 else by_step(figures.counts, step).toArrow()
    html = page(tables, spans, step)
    for name, table in tables.items():
        write_table(f"{path}/figures/{name}.parquet", table)
    write_bytes(f"{path}/report.html", html.encode())


def follow(
    spark: SparkSession, server: RedisOptions, queues: Sequence[str], path: str, *, stop: threading.Event | None = None,
    until_now: bool = False, skip_lost: bool = False, tell_loss: OnLoss = warn,
) -> Figures:  # fmt: skip
    """Keep figures, as `save` writes them, up to date while queues run, for the minutes that are over.

    The numbers for these minutes are those of `report`, except that an ack or nack more than a week after its delivery
    has no time. The job may be killed at any point; the next run continues. Events that come after their minute is
    over, for example because a clock was set back, are logged and left out.

    Args:
        path: the folder of the report; ``PATH/counts`` holds its source data.
        stop: set it to end the run.
        until_now: whether to end when everything that was there at the start is counted.
        skip_lost: if a ledger dropped entries before they were counted, continue from the oldest one that exists, and
            record the missing ones in ``PATH/lost/queue=…/*.parquet``.
        tell_loss: called with each of these losses.

    Returns:
        The figures at the end.

    Raises:
        InvalidInput: a queue keeps no ledger.
        LakeMismatch: another process is following one of the queues here, or the folder's own records are gone.
        DataLost: a ledger dropped entries before they were counted, and `skip_lost` is off.
    """
    stop = stop or threading.Event()
    tables = [AppendTable(path.rstrip("/"), TABLE, queue, "minute", SCHEMA, KEY) for queue in dict.fromkeys(queues)]
    for table in tables:
        check_ledger(server, table.queue)
    keeper = _ReportKeeper(spark, path)
    trigger = {"availableNow": True} if until_now else {"processingTime": FOLLOW_EVERY}
    with ExitStack() as locks:
        for table in tables:
            locks.enter_context(
                exclusive_lock(f"{table.work}/following.lock", f"following queue {table.queue} to {shown(path)}")
            )
        appending: list[AppendQuery] = []
        for table in tables:
            counter = IncrementalCounts(table)
            counter.check()
            noted = noting_losses(server, table, counter.found, keeper.tell, tell_loss)
            appending.append(AppendQuery(table, noted if skip_lost else keeper.tell, counter))
        frames = [_reading(spark, server, table.queue, fails=not skip_lost) for table in tables]
        with with_remedy(path, "counted"):
            queries = [each.start(frame.writeStream, **trigger) for each, frame in zip(appending, frames, strict=True)]
            run(queries, appending, stop, [keeper.look])
    return keeper.figures()


def _reading(spark: SparkSession, server: RedisOptions, queue: str, fails: bool) -> DataFrame:
    # No limit on a batch, so that each reads all shards to their ends. Otherwise one shard could be an hour behind the
    # others, and its events would count as too late.
    options = server.options(events=queue, failOnDataLoss=fails)
    return spark.readStream.format("delayq").options(**options).load()


class _ReportKeeper:
    """Writes the report at the start, and again after each batch that completes a minute."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path
        self._has_news = threading.Event()
        self._has_news.set()  # an earlier run may have been killed before it wrote the report

    def tell(self, stored: StoredBatch) -> None:
        """Note a batch."""
        if stored.rows:
            self._has_news.set()

    def look(self) -> None:
        """Write the report if there is anything new."""
        if self._has_news.is_set():
            self._has_news.clear()
            save(self.figures(), self._path)

    def figures(self) -> Figures:
        """Return the figures as they are now."""
        folder = folders.for_spark(f"{self._path}/{TABLE}")
        if not folders.names(f"{self._path}/{TABLE}"):
            return Figures.of(self._spark.createDataFrame([], counting.COLUMNS))
        return Figures.of(self._spark.read.schema(counting.COLUMNS).option("basePath", folder).parquet(folder))
