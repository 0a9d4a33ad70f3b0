"""Bulk sends: each row of a table becomes a message, once, also when the job is run again."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as all who write Spark know it

from delayq.errors import InvalidInput
from delayq.lake.files import whole
from delayq.names import check_queue_name
from delayq.operations.core import Core
from delayq.operations.sealing import seal_one
from delayq.spark.failures import translated
from delayq.spark.jobs.tables import as_messages, read_table
from delayq.spark.jobs.tasks import in_tasks
from delayq.spark.server import Server, ServerClock
from delayq.spark.writing.rows import Row, Rows
from delayq.spark.writing.sink import DAY, Summary

MOST_REASONS = 10
MOST_HOURS = 100_000  # eleven years of them

_SPLITS = "spark.sql.files.minPartitionNum"
_FIXED_SPLITS = "16"

Checked: TypeAlias = tuple[dt.datetime | None, str | None]
"""When a row would be due, or why it cannot be sent."""


class Preview(msgspec.Struct, frozen=True):
    """What a bulk send would do.

    Attributes:
        sendable: rows that would be sent, unless their ids exist.
        refused: rows that cannot be sent.
        reasons: why, the most frequent first, with how many rows; ten at most.
        earliest, latest: due times; None when there is nothing to send.
        hours: messages by the hour in which they are due, earliest first; those without any are left out.
    """

    sendable: int
    refused: int
    reasons: dict[str, int]
    earliest: dt.datetime | None
    latest: dt.datetime | None
    hours: dict[dt.datetime, int]


def schedule(
    spark: SparkSession,
    table: DataFrame | str,
    server: Server,
    queue: str,
    columns: Mapping[str, str] | None = None,
    *,
    delay: float | None = None,
    table_format: str | None = None,
    options: Mapping[str, str] | None = None,
    payload_format: str = "text",
    unique_for: float = DAY,
    run: str | None = None,
    rejects: str | None = None,
) -> Summary:
    """Send each row of a table.

    Args:
        table: a DataFrame, or where it is, as in `read_table`.
        columns: from columns of a message (payload, due_at, delay, id, headers, max_retries, expires_at) to expressions
            of Spark SQL; when None, the table has them under these names.
        delay: seconds until all of them are due.
        payload_format: what a payload that is a string is: "text", or the text of a "json" document.
        unique_for: seconds for which a sent id keeps others of its name out, 0 for none.
        run: a name for this work: rows without an id get the same one whenever it is done again under this name.
        rejects: a folder for the rows that cannot be sent; when None, the first of them ends the job.

    Raises:
        InvalidInput: naming what is wrong with the table, or an argument; nothing was sent.
        RowRefused: a row cannot be sent, and there is no `rejects`; others may have been.
    """
    messages = _messages(spark, table, columns, delay, table_format, options, payload_format)
    with tempfile.TemporaryDirectory() as folder, _steady(spark), translated():
        told = Path(folder) / "summary.json"
        settings = server.options(
            queue=check_queue_name(queue),
            payload_format=payload_format,
            unique_for=unique_for,
            run=run,
            rejects=None if rejects is None else whole(rejects),
            mode=None if rejects is None else "PERMISSIVE",
            summary=told,
        )
        messages.write.format("delayq").mode("append").options(**settings).save()
        return msgspec.json.decode(told.read_bytes(), type=Summary)


def preview(
    spark: SparkSession,
    table: DataFrame | str,
    server: Server,
    queue: str,
    columns: Mapping[str, str] | None = None,
    *,
    delay: float | None = None,
    table_format: str | None = None,
    options: Mapping[str, str] | None = None,
    payload_format: str = "text",
) -> Preview:
    """Return what `schedule` would do; nothing is changed.

    Raises:
        InvalidInput: as `schedule` does.
    """
    messages = _messages(spark, table, columns, delay, table_format, options, payload_format)
    with translated():
        rows = check_rows(messages, server, queue, payload_format).cache()
        try:
            return _summed_up(rows)
        finally:
            rows.unpersist()


def check_rows(messages: DataFrame, server: Server, queue: str, payload_format: str = "text") -> DataFrame:
    """Return one row per row of a table of messages: `due_at`, or the `reason` why it cannot be sent; one is null."""
    schema = messages.schema
    name = check_queue_name(queue)

    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[list[Checked]]:
        rows = Rows(schema, payload_format)
        with server.queue(name) as opened:
            clock = ServerClock(opened)
            for batch in batches:
                now = clock.now()
                yield [_checked(opened.core, row, now) for row in rows.read(batch, 0, now)]

    return in_tasks(messages, check, "due_at timestamp, reason string")


def _checked(core: Core, row: Row, now: dt.datetime) -> Checked:
    if isinstance(row.message, InvalidInput):
        return None, str(row.message)
    try:
        seal_one(core, row.message, "")
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
    """Return a moment as Spark counts it; its own way to one goes by the zone of this process."""
    return None if micros is None else dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)


def _messages(
    spark: SparkSession,
    table: DataFrame | str,
    columns: Mapping[str, str] | None,
    delay: float | None,
    table_format: str | None,
    options: Mapping[str, str] | None,
    payload_format: str,
) -> DataFrame:
    found = read_table(spark, table, table_format, options) if isinstance(table, str) else table
    messages = as_messages(found, columns, delay)
    Rows(messages.schema, payload_format)  # says what is wrong here, rather than in a task
    return messages


@contextmanager
def _steady(spark: SparkSession) -> Iterator[None]:
    """Let files be divided among tasks in a way that does not depend on this machine's cores.

    An id that a row is given names its task: a rerun elsewhere would send it again.
    """
    before = spark.conf.get(_SPLITS, None)
    spark.conf.set(_SPLITS, before or _FIXED_SPLITS)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_SPLITS)
