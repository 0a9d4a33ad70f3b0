"""Events counted by the minute: all that the figures are made of, and what a stream can count as well."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from delayq.spark.reporting.buckets import bucket_of

COLUMNS = (
    "queue string, minute timestamp, event string, attempt int, error string, bucket bigint, n bigint, longest double"
)

_KEYS = ("queue", "event", "attempt", "error", "bucket")
_ERROR_LENGTH = 300
_IDS = r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4,}){2,}\b|[0-9]{4,}"


def timed(events: DataFrame) -> DataFrame:
    """Add `took`, seconds: of delivered how late it was, of acked and nacked the time since the delivery that they end.

    It is null where the ledger no longer has that delivery.
    """
    millis, number = (f.split("entry", "-").getItem(i).cast("bigint") for i in (0, 1))
    before = Window.partitionBy("queue", "id", "attempt").orderBy(millis, number)
    is_end = f.col("event").isin("acked", "nacked") & (f.lag("event").over(before) == "delivered")
    since = f.col("at").cast("double") - f.lag("at").over(before).cast("double")
    return events.withColumn("took", f.when(is_end, since).otherwise(_late()))


def counts(events: DataFrame) -> DataFrame:
    """Count events: one row per queue, minute, event, attempt, error and bucket of `took`, with `COLUMNS`.

    Args:
        events: of ledgers, with `took`, where it was added; those of a stream have a watermark on `at`.

    Returns:
        `error` is why messages have died, with long numbers and ids as ``…``, else null; `longest` is of `took`.
    """
    took = f.col("took") if "took" in events.columns else _late()
    error = f.when(f.col("event") == "died", like(f.col("reason")))
    keyed = events.select(
        "queue", "at", "event", "attempt", took.alias("took"), error.alias("error"),
        bucket_of(f.round(took * 1000)).alias("bucket"),
    )  # fmt: skip
    counted = keyed.groupBy(f.window("at", "1 minute"), *_KEYS).agg(
        f.count("*").alias("n"), f.max("took").alias("longest")
    )
    return counted.select(
        "queue", f.col("window.start").alias("minute"), "event", "attempt", "error", "bucket", "n", "longest"
    )


def like(reason: Column) -> Column:
    """Return what errors of a kind have in common: all but their ids, and of those that are long the beginning."""
    return f.substring(f.regexp_replace(f.coalesce(reason, f.lit("")), _IDS, "…"), 1, _ERROR_LENGTH)


def _late() -> Column:
    return f.when(f.col("event") == "delivered", f.col("late"))
