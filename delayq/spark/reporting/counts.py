"""Events counted by the minute: all that the figures are made of, and what a stream can count as well."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.window import WindowSpec

from delayq.spark.reporting.histogram import bucket_of

COLUMNS = (
    "queue string, minute timestamp, event string, attempt int, error string, bucket bigint, n bigint, longest double"
)

_KEYS = ("queue", "event", "attempt", "error", "bucket")
_ERROR_LENGTH = 300
_WORD = r"(?<![0-9A-Za-z])%s(?![0-9A-Za-z])"
_IDS = "|".join(
    (
        r"0x[0-9a-fA-F]+",
        _WORD % r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4,}){2,}",
        _WORD % r"(?=[A-Za-z]*[0-9])[0-9A-Za-z]{10,}",  # as most of those that delayq makes
        r"[0-9]{4,}",
    )
)


def timed(events: DataFrame) -> DataFrame:
    """Add `took`, seconds: of delivered how late it was, of acked and nacked the time since the delivery that they end.

    It is null where the ledger no longer has that delivery.
    """
    before = _attempts()
    is_end = f.col("event").isin("acked", "nacked") & (f.lag("event").over(before) == "delivered")
    since = (f.unix_micros("at") - f.unix_micros(f.lag("at").over(before))) / 1_000_000
    return events.withColumn("took", f.when(is_end, since).otherwise(_late()))


def unended(events: DataFrame) -> DataFrame:
    """Return the deliveries after which nothing was told of their attempt: `timed` needs them for what comes."""
    following = events.withColumn("then", f.lead("event").over(_attempts()))
    return following.where((f.col("event") == "delivered") & f.col("then").isNull()).drop("then")


def place_of(entry: str) -> list[Column]:
    """Return by what entries are in order: the two numbers of their ids."""
    return [f.split(entry, "-").getItem(i).cast("bigint") for i in (0, 1)]


def counts(events: DataFrame) -> DataFrame:
    """Count events: one row per queue, minute, event, attempt, error and bucket of `took`, with `COLUMNS`.

    Args:
        events: of ledgers, with `took`, as `timed` adds it.

    Returns:
        `error` is why messages have died, with long numbers and ids as ``…``, else null; `longest` is of `took`.
    """
    error = f.when(f.col("event") == "died", like(f.col("reason")))
    keyed = events.select(
        "queue", "at", "event", "attempt", "took", error.alias("error"),
        bucket_of(f.round(f.col("took") * 1000)).alias("bucket"),
    )  # fmt: skip
    counted = keyed.groupBy(f.window("at", "1 minute"), *_KEYS).agg(
        f.count("*").alias("n"), f.max("took").alias("longest")
    )
    return counted.select(
        "queue", f.col("window.start").alias("minute"), "event", "attempt", "error", "bucket", "n", "longest"
    )


def summed(counts: DataFrame) -> DataFrame:
    """Add counts up that are of the same minute, event, attempt, error and bucket."""
    keys = ("queue", "minute", *_KEYS[1:])
    return counts.groupBy(*keys).agg(f.sum("n").alias("n"), f.max("longest").alias("longest"))


def like(reason: Column) -> Column:
    """Return what errors of a kind have in common: all but their ids, and of those that are long the beginning."""
    return f.substring(f.regexp_replace(f.coalesce(reason, f.lit("")), _IDS, "…"), 1, _ERROR_LENGTH)


def _attempts() -> WindowSpec:
    # By shards: what an ack sends lives where the acked message did, so an id may come back on another one, whose
    # entries need not be known as far, nor be in order with those of the first.
    return Window.partitionBy("queue", "shard", "id", "attempt").orderBy(*place_of("entry"))


def _late() -> Column:
    return f.when(f.col("event") == "delivered", f.col("late"))
