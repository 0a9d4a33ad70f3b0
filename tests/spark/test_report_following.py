"""`report --follow` counts by the minute what `report` counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import redis
import structlog
from pyspark.sql import SparkSession

from delayq.model.units import from_ms
from delayq.spark.jobs.report import follow, ledgers, report
from delayq.spark.redis_options import RedisOptions
from tests.harness.ledgers import append
from tests.harness.servers import RedisServer
from tests.harness.spark.recorded import seen

AT = 1_763_726_400_000  # a whole minute
MINUTE = 60_000


def record(client: redis.Redis, minute: int) -> None:
    """Append the events of a minute: ten messages, every third fails and every fifth dies."""
    for i in range(10):
        at, name = AT + minute * MINUTE + i * 5000, f"m{minute}-{i}"
        append(client, name, "sent", at, shards=2, due=at)
        append(client, name, "delivered", at + i**3, shards=2, attempt=1, due=at, late=i**3)
        if i % 5 == 0:
            append(client, name, "died", at + 900, shards=2, attempt=1, reason=f"rejected: {1000 + i}")
        else:
            append(client, name, "acked" if i % 3 else "nacked", at + 900, shards=2, attempt=1)


def figures_of(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path / "figures" / "minutes.parquet").to_pylist()
    return rows


def test_finished_minutes_have_the_figures_of_the_report(
    spark: SparkSession, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
):
    server = RedisOptions(redis_server.url)
    with server.queue("jobs", shards=2) as queue:
        queue.configure(events=True)
    for minute in range(3):
        record(redis_client, minute)
    follow(spark, server, ["jobs"], str(tmp_path), until_now=True)
    assert [row["minute"] for row in figures_of(tmp_path)] == [from_ms(AT + i * MINUTE) for i in range(2)]
    for minute in range(3, 6):
        record(redis_client, minute)
    append(redis_client, "late", "sent", AT, shards=2)
    with structlog.testing.capture_logs() as logged:
        figures = follow(spark, server, ["jobs"], str(tmp_path), until_now=True)
    assert [line["count"] for line in logged if line["event"] == "late events not counted"] == [1]

    over = from_ms(AT + 5 * MINUTE)
    batch = report(spark, ledgers(spark, server, ["jobs"]))
    rows = [row for row in batch.minutes.toArrow().to_pylist() if row["minute"] < over]
    assert rows[0].pop("sent") == 11
    counted = figures_of(tmp_path)
    assert counted[0].pop("sent") == 10  # all except the late one
    assert counted == rows
    assert [(row["late_p50"], row["late_max"]) for row in rows] == [(0.065, 0.729)] * 5  # rounded to a 32nd, and exact
    assert [(row["took_p50"], row["took_max"]) for row in rows] == [(0.687, 0.899)] * 5
    assert {row["minute"] for row in seen(tmp_path, "counts")} == {row["minute"] for row in rows}
    assert [(row.error, row.deaths) for row in figures.deaths.collect()] == [("rejected: …", 10)]
    assert "rejected: …" in (tmp_path / "report.html").read_text()
