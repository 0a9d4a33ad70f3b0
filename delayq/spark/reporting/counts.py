"""Events counted by the minute, the source of all figures; a stream can count them too."""

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
        _WORD % r"(?=[A-Za-z]*[0-9])[0-9A-Za-z]{10,}",  # matches most ids that delayq generates
        r"[0-9]{4,}",
    )
)


def timed(events: DataFrame) -> DataFrame:
    """Add `took`, in seconds: the lateness for delivered, and the time since the delivery for acked and nacked.

    It is null if the ledger has dropped that delivery.
    """
    before = _attempts()
    is_end = f.col("event").isin("acked", "nacked") & (f.lag("event").over(before) == "delivered")
    since = (f.unix_micros("at") - f.unix_micros(f.lag("at").over(before))) / 1_000_000
    return events.withColumn("took", f.when(is_end, since).otherwise(_late()))


def unended(events: DataFrame) -> DataFrame:
    """Return the deliveries whose attempt has no later event; `timed` needs them for events to come."""
    following = events.withColumn("then", f.lead("event").over(_attempts()))
    return following.where((f.col("event") == "delivered") & f.col("then").isNull()).drop("then")


def place_of(entry: str) -> list[Column]:
    """Return the sort keys of entries: the two numbers of their ids."""
    return [f.split(entry, "-").getItem(i).cast("bigint") for i in (0, 1)]


def counts(events: DataFrame) -> DataFrame:
    """Count events: one row per queue, minute, event, attempt, error and bucket of `took`, with `COLUMNS`.

    Args:
        events: of ledgers, with `took` as added by `timed`.

    Returns:
        `error` is why messages died, with long numbers and ids as ``…``, else null; `longest` is the longest `took`.
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
    """Add up counts with the same minute, event, attempt, error and bucket."""
    keys = ("queue", "minute", *_KEYS[1:])
    return counts.groupBy(*keys).agg(f.sum("n").alias("n"), f.max("longest").alias("longest"))


def like(reason: Column) -> Column:
    """Return the common part of errors of one kind: without ids and, if it is long, only the beginning."""
    return f.substring(f.regexp_replace(f.coalesce(reason, f.lit("")), _IDS, "…"), 1, _ERROR_LENGTH)


def _attempts() -> WindowSpec:
    # By shard: an ack's `then` messages are on the acked message's shard, so an id may appear again on another shard,
    # whose entries may be known only up to another time and are not in order with those of the first.
    return Window.partitionBy("queue", "shard", "id", "attempt").orderBy(*place_of("entry"))


def _late() -> Column:
    return f.when(f.col("event") == "delivered", f.col("late"))
