"""Preview what a table of messages would become, without changing anything."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual name

from delayq.errors import InvalidInput
from delayq.model.validation import check_queue_name
from delayq.operations.encode import encode_message
from delayq.spark.errors import translated
from delayq.spark.jobs.partitions import in_tasks
from delayq.spark.jobs.tables import read_messages
from delayq.spark.redis_options import RedisOptions, ServerClock
from delayq.spark.writing.rows import Rows, TableRow

MOST_REASONS = 10
MOST_HOURS = 100_000  # eleven years

Checked: TypeAlias = tuple[dt.datetime | None, str | None]
"""When a row would be due, or why it cannot be sent."""


class Preview(msgspec.Struct, frozen=True):
    """What a table of messages would become.

    Attributes:
        sendable: rows that would be sent, or written to a lake, unless their ids exist.
        refused: rows that cannot be sent.
        reasons: why not, with the number of rows, the most frequent first; at most ten.
        earliest, latest: due times; None if there is nothing to send.
        hours: the number of messages due in each hour, earliest first; empty hours are left out.
    """

    sendable: int
    refused: int
    reasons: dict[str, int]
    earliest: dt.datetime | None
    latest: dt.datetime | None
    hours: dict[dt.datetime, int]


def preview(
    spark: SparkSession,
    table: DataFrame | str,
    server: RedisOptions | None,
    queue: str,
    columns: Mapping[str, str] | None = None,
    *,
    delay: float | None = None,
    table_format: str | None = None,
    options: Mapping[str, str] | None = None,
    payload_format: str = "text",
) -> Preview:
    """Return what `schedule` or `defer` would do, without changing anything.

    Args:
        server: the server whose clock delays count by; None for each machine's own, as for a lake.
        table, queue, columns, delay, table_format, options, payload_format: as in `schedule` and `defer`.

    Raises:
        InvalidInput: as in `schedule` and `defer`.
    """
    messages = read_messages(spark, table, columns, delay, table_format, options, payload_format)
    with translated():
        rows = _checks(messages, server, check_queue_name(queue), payload_format).cache()
        try:
            return _summed_up(rows)
        finally:
            rows.unpersist()


def _checks(messages: DataFrame, server: RedisOptions | None, queue: str, payload_format: str) -> DataFrame:
    """Return `due_at` of each row of a table of messages, or the `reason` why it cannot be sent; the other is null."""
    schema = messages.schema

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[list[Checked]]:
        rows, clock = Rows(schema, payload_format), _clock(server, queue)
        for batch in batches:
            now = clock()
            yield [_checked(row, now) for row in rows.read(batch, 0, now)]

    return in_tasks(messages, check, "due_at timestamp, reason string")


def _clock(server: RedisOptions | None, queue: str) -> Callable[[], dt.datetime]:
    """Return a function that returns the time."""
    if server is None:
        return partial(dt.datetime.now, dt.UTC)
    with server.queue(queue) as opened:
        return ServerClock(opened).now


def _checked(row: TableRow, now: dt.datetime) -> Checked:
    if isinstance(row.message, InvalidInput):
        return None, str(row.message)
    try:
        encode_message(row.message)
    except InvalidInput as error:
        return None, str(error)
    if row.message.at is not None:
        return row.message.at, None
    return now + dt.timedelta(seconds=float(row.message.delay or 0)), None  # type: ignore[arg-type]  # a number here


def _summed_up(rows: DataFrame) -> Preview:
    due = F.col("due_at")
    total = rows.agg(F.count(due), F.count("reason"), F.unix_micros(F.min(due)), F.unix_micros(F.max(due))).first()
    assert total is not None, "an aggregate of all rows is one row"
    reasons = rows.where("reason IS NOT NULL").groupBy("reason").count().orderBy(F.desc("count"), "reason")
    hour = F.unix_micros(F.date_trunc("hour", due)).alias("hour")
    hours = rows.where(due.isNotNull()).groupBy(hour).count().orderBy("hour")
    return Preview(
        sendable=total[0],
        refused=total[1],
        reasons=dict(map(tuple, reasons.limit(MOST_REASONS).collect())),
        earliest=_moment(total[2]),
        latest=_moment(total[3]),
        hours={_moment(at): count for at, count in hours.limit(MOST_HOURS).collect()},  # type: ignore[misc]  # none null
    )


def _moment(micros: int | None) -> dt.datetime | None:
    """Return a moment from Spark's microseconds; Spark's own conversion uses this process's time zone."""
    return None if micros is None else dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
