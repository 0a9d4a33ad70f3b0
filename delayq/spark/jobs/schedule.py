"""Bulk sends: each row of a table becomes a message, once, also when the job is run again."""

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
        table: a DataFrame, or where it is, as in `read_table`.
        columns: from columns of a message (payload, due_at, delay, id, headers, max_retries, expires_at, timeout) to
            expressions of Spark SQL; when None, the table has them under these names.
        delay: seconds until all of them are due.
        payload_format: what a payload that is a string is: "text", or the text of a "json" document.
        unique_for: seconds for which a sent id keeps others of its name out, 0 for none.
        run: a name for this work: rows without an id get the same one whenever it is done again under this name.
        rejects: a folder for the rows that cannot be sent; when None, the first of them ends the job.

    Raises:
        InvalidInput: naming what is wrong with the table, or an argument; nothing was sent.
        RowRefused: a row cannot be sent, and there is no `rejects`; others may have been.
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
