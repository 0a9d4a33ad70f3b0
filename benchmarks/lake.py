"""``python -m benchmarks.lake``: how fast messages are written to a lake, and moved from there into Redis."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable

import click
from delayq.cli.output import print_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # the usual name

from benchmarks.server import BenchServer
from delayq.model.units import from_ms
from delayq.spark import session
from delayq.spark.jobs.defer import defer
from delayq.spark.jobs.hydrate import hydrate
from delayq.spark.redis_options import RedisOptions

QUEUE = "bench"
HOUR = 3600
DAY = 24 * HOUR


def round_of(spark: SparkSession, server: BenchServer, size: int, rows: int) -> dict[str, float]:
    """Defer a day's messages; defer as many for one hour, and hydrate these; return the rates per second."""
    server.flush()
    start = (int(time.time()) // HOUR + 24) * HOUR
    until = from_ms(start * 1000)
    of_day, of_hour = (_table(spark, size, rows, start, span) for span in (DAY, HOUR))
    with tempfile.TemporaryDirectory() as lake:
        deferred = _rate(rows, lambda: defer(spark, of_day, lake, QUEUE, run="bench"))
    with tempfile.TemporaryDirectory() as lake:
        defer(spark, of_hour, lake, QUEUE, run="bench")
        hydrated = _rate(rows, lambda: hydrate(spark, lake, RedisOptions(server.url), DAY, QUEUE, until=until))
    return {"defer": deferred, "hydrate": hydrated}


def _table(spark: SparkSession, size: int, rows: int, start: int, span: int) -> DataFrame:
    """Return messages that are due evenly over some seconds."""
    return spark.range(rows).select(
        F.concat(F.lit("message-"), F.col("id")).alias("id"),
        F.rpad(F.col("id").cast("string"), size, "x").cast("binary").alias("payload"),
        F.timestamp_seconds(F.lit(start) + F.pmod(F.xxhash64("id"), F.lit(span))).alias("due_at"),
    )


def _rate(rows: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return rows / (time.perf_counter() - began)


@click.command()
@click.option(
    "--messages",
    default=1_000_000,
    show_default=True,
    type=click.IntRange(1000),
    help="Messages of the day, and of the hour.",
)
@click.option("--payload", default=100, show_default=True, type=click.IntRange(8), help="Bytes per payload.")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1), help="Runs; the results are medians.")
def main(messages: int, payload: int, runs: int) -> None:
    """Measure how fast a day's messages are written to a lake, and an hour's are moved into Redis, on all cores."""
    quiet = {"spark.log.level": "ERROR", "spark.ui.enabled": "false"}
    spark = session(None, quiet, "bench")
    try:
        with BenchServer() as server:
            round_of(spark, server, payload, messages // 10)  # the first round also starts the workers
            rounds = [round_of(spark, server, payload, messages) for _ in range(runs)]
            held = server.client.dbsize()
    finally:
        spark.stop()
    rows = []
    for name in rounds[0]:
        rates = [each[name] for each in rounds]
        rows.append([name, f"{statistics.median(rates):,.0f}", f"{min(rates):,.0f}–{max(rates):,.0f}"])
    print_table(["messages per second", "#median", "#from–to"], rows)
    if held < 2 * messages:  # each has its envelope and its mark
        raise click.ClickException(f"{held:,} keys are in Redis: the figures are void")


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.lake")
