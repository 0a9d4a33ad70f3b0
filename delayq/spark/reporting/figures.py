"""Figures about queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from delayq.spark.reporting.histogram import percentiles

EVENTS = (
    *("sent", "replaced", "promoted", "delivered", "acked", "nacked", "lease_lost", "released", "held_back", "died"),
    *("requeued", "rescheduled", "expired", "cancelled", "purged"),
)
"""The events that are counted, each with a counter in `QueueStats`, where held_back also counts as released."""


@dataclass(frozen=True)
class Figures:
    """Figures about queues. Times are in UTC, durations in seconds.

    Attributes:
        queues: one row per queue: queue, first_at and last_at (minutes), a count of each of `EVENTS`, retried (nacked
            and lease_lost), and late_p50, late_p90, late_p99, late_max, took_p50, … took_max: the lateness of
            deliveries, and the time from delivery to ack or nack.
        minutes: the same, one row per queue and minute with events.
        attempts: one row per queue and attempt number: delivered, acked, nacked, lease_lost, died; share, which is the
            part of the messages acked or dead that this attempt acked; reached, the same for this attempt and earlier
            ones together.
        deaths: one row per queue and error: deaths, first_at, last_at; the most frequent errors first.
        lateness: one row per queue and bucket (those of `QueueStats.lateness`): below_ms, deliveries.
        counts: the source of these figures; see `delayq.spark.reporting.counts`.
    """

    queues: DataFrame
    minutes: DataFrame
    attempts: DataFrame
    deaths: DataFrame
    lateness: DataFrame
    counts: DataFrame

    @classmethod
    def of(cls, counts: DataFrame) -> Figures:
        """Compute the figures from counts."""
        span = (f.min("minute").alias("first_at"), f.max("minute").alias("last_at"))
        return cls(
            queues=_totals(counts, ["queue"], *span).orderBy("queue"),
            minutes=_totals(counts, ["queue", "minute"]).orderBy("queue", "minute"),
            attempts=_attempts(counts),
            deaths=_deaths(counts),
            lateness=_lateness(counts),
            counts=counts,
        )

    def tables(self) -> dict[str, DataFrame]:
        """Return the tables by name, without the counts."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "counts"}


def by_step(counts: DataFrame, minutes: int) -> DataFrame:
    """Return figures like `Figures.minutes` for spans of `minutes` minutes; `minute` is the beginning of a span."""
    seconds = 60 * minutes
    start = (f.floor(f.col("minute").cast("bigint") / seconds) * seconds).cast("timestamp")
    return _totals(counts.withColumn("minute", start), ["queue", "minute"]).orderBy("queue", "minute")


def _number(*events: str) -> Column:
    return f.coalesce(f.sum(f.when(f.col("event").isin(*events), f.col("n"))), f.lit(0)).cast("bigint")


def _totals(counts: DataFrame, keys: Sequence[str], *others: Column) -> DataFrame:
    also = {"released": ("released", "held_back")}
    columns = [_number(*also.get(event, (event,))).alias(event) for event in EVENTS]
    totals = counts.groupBy(*keys).agg(*others, *columns, _number("nacked", "lease_lost").alias("retried"))
    timed = counts.where(f.col("bucket").isNotNull())
    late = percentiles(timed.where(f.col("event") == "delivered"), keys, "late")
    took = percentiles(timed.where(f.col("event") != "delivered"), keys, "took")
    return totals.join(late, list(keys), "left").join(took, list(keys), "left")


def _attempts(counts: DataFrame) -> DataFrame:
    events = ("delivered", "acked", "nacked", "lease_lost", "died")
    columns = [_number(event).alias(event) for event in events]
    found = counts.where(f.col("attempt").isNotNull()).groupBy("queue", "attempt").agg(*columns)
    queue = Window.partitionBy("queue")
    upwards = queue.orderBy("attempt").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ended = f.sum(f.col("acked") + f.col("died")).over(queue)
    return found.withColumns(
        {"share": _share(f.col("acked"), ended), "reached": _share(f.sum("acked").over(upwards), ended)}
    ).orderBy("queue", "attempt")


def _share(part: Column, whole: Column) -> Column:
    return f.when(whole > 0, part / whole)


def _deaths(counts: DataFrame) -> DataFrame:
    return (
        counts.where(f.col("event") == "died")
        .groupBy("queue", "error")
        .agg(f.sum("n").alias("deaths"), f.min("minute").alias("first_at"), f.max("minute").alias("last_at"))
        .orderBy("queue", f.desc("deaths"), "error")
    )


def _lateness(counts: DataFrame) -> DataFrame:
    # 0 ms is below 1, 1 below 2, 2 and 3 below 4, as in frexp, which the queue uses.
    digits = f.when(f.col("bucket") > 0, f.length(f.bin("bucket"))).otherwise(0)
    below = f.call_function("shiftleft", f.lit(1).cast("bigint"), digits)
    return (
        counts.where((f.col("event") == "delivered") & f.col("bucket").isNotNull())
        .groupBy("queue", below.alias("below_ms"))
        .agg(f.sum("n").alias("deliveries"))
        .orderBy("queue", "below_ms")
    )
