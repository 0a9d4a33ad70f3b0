"""Bulk sends: each row of a table becomes one message, even if the job runs again."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession

from delayq.lake.object_store import whole
from delayq.model.validation import check_queue_name
from delayq.spark.errors import put_aside_by, translated
from delayq.spark.jobs.tables import read_messages
from delayq.spark.redis_options import RedisOptions
from delayq.spark.writing.sink import DAY, Summary

_SPLITS = "spark.sql.files.minPartitionNum"
_FIXED_SPLITS = "16"


def schedule(
    spark: SparkSession,
    table: DataFrame | str,
    server: RedisOptions,
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
        table: a DataFrame, or its place, as in `read_table`.
        columns: expressions of Spark SQL for columns of a message (payload, due_at, delay, id, headers, max_retries,
            expires_at, timeout); None if the table has columns with these names.
        delay: seconds until all messages are due.
        payload_format: what a string payload is: "text", or the text of a "json" document.
        unique_for: seconds for which a sent id stays reserved; 0 for none.
        run: a name for this job: rows without an id get the same one each time the job runs with this name.
        rejects: a folder for rows that cannot be sent; if None, the first such row ends the job.

    Raises:
        InvalidInput: says what is wrong with the table or an argument; nothing was sent.
        RowRefused: a row cannot be sent, and there is no `rejects`; others may have been sent.
    """
    messages = read_messages(spark, table, columns, delay, table_format, options, payload_format)
    with tempfile.TemporaryDirectory() as folder, _steady(spark), put_aside_by("rejects=FOLDER"), translated():
        written = Path(folder) / "summary.json"
        settings = server.options(
            queue=check_queue_name(queue),
            payload_format=payload_format,
            unique_for=unique_for,
            run=run,
            rejects=None if rejects is None else whole(rejects),
            mode=None if rejects is None else "PERMISSIVE",
            summary=written,
        )
        messages.write.format("delayq").mode("append").options(**settings).save()
        return msgspec.json.decode(written.read_bytes(), type=Summary)


@contextmanager
def _steady(spark: SparkSession) -> Iterator[None]:
    """Make the division of files among tasks independent of this machine's cores.

    A generated id depends on the task, so a rerun with other tasks would send the row again.
    """
    before = spark.conf.get(_SPLITS, None)
    spark.conf.set(_SPLITS, before or _FIXED_SPLITS)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_SPLITS)
