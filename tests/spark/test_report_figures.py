"""The figures equal a count by hand, and the queue's own counters."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from delayq import Message, Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.spark.jobs.report import ledgers, report
from delayq.spark.redis_options import RedisOptions
from delayq.spark.reporting.figures import EVENTS, Figures
from delayq.spark.reporting.histogram import bucket_of, top_of
from tests.harness.servers import RedisServer
from tests.harness.spark.recorded import NOON, event, frame


def rows(found: DataFrame) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = found.toArrow().to_pylist()
    return told


# Two minutes of two messages: a is 40 ms late, fails, loses its lease, and is acked by its third attempt; b dies.
STORY = [
    event("sent", 0, "a"),
    event("sent", 1, "b"),
    event("delivered", 2, "a", attempt=1, late=0.04),
    event("nacked", 2.5, "a", attempt=1, reason="ValueError: no"),
    event("delivered", 3, "b", attempt=1, late=0.0),
    event("died", 3.25, "b", attempt=1, reason="rejected: order 4711 of 0xdeadbeef is unknown (404)"),
    event("delivered", 61, "a", attempt=2, late=1.0),
    event("lease_lost", 91, "a", attempt=2),
    event("delivered", 92, "a", attempt=3, late=0.5),
    event("released", 92.1, "a", attempt=3),
    event("delivered", 93, "a", attempt=3, late=0.01),
    event("held_back", 93.1, "a", attempt=3),
    event("delivered", 94, "a", attempt=3, late=0.02),
    event("acked", 95.5, "a", attempt=3),
]


@pytest.fixture(scope="module")
def story(spark: SparkSession) -> Figures:
    return report(spark, frame(spark, STORY))


@pytest.fixture(scope="module")
def deaths(spark: SparkSession) -> Figures:
    """Figures of some deaths, and of an ack whose delivery is unknown."""
    ids = ["Jb8SXsP1seKen0", "Jb8SXsQA4mQ2bR", "550e8400-e29b-41d4-a716-446655440000"]
    reasons = [f"rejected: order {4711 + i} of 0xdeadbee{i}, u_{each}, (404)" for i, each in enumerate(ids)]
    died = [event("died", i, f"m{i}", reason=reason) for i, reason in enumerate(reasons)]
    return report(spark, frame(spark, [*died, event("died", 70, "x", reason=None), event("acked", 1, attempt=1)]))


def test_each_minute_is_counted_separately(story: Figures):
    first, second = rows(story.minutes)
    assert (first["minute"], second["minute"]) == (NOON, NOON + dt.timedelta(minutes=1))
    told = ("sent", "delivered", "acked", "nacked", "lease_lost", "retried", "died", "released", "held_back")
    assert [first[name] for name in told] == [2, 2, 0, 1, 0, 1, 1, 0, 0]
    assert [second[name] for name in told] == [0, 4, 1, 0, 1, 1, 0, 2, 1]  # held back messages count as released too


def test_lateness_percentiles_use_the_nearest_rank(story: Figures):
    first, second = rows(story.minutes)
    assert [first[f"late_{share}"] for share in ("p50", "p90", "p99", "max")] == [0.0, 0.04, 0.04, 0.04]
    assert [second[f"late_{share}"] for share in ("p50", "max")] == [0.02, 1.0]
    (whole,) = rows(story.queues)
    assert [whole[f"late_{share}"] for share in ("p50", "p90", "max")] == [0.02, 1.0, 1.0]


def test_handling_time_counts_from_the_delivery_that_is_settled(story: Figures):
    first, second = rows(story.minutes)
    assert (first["took_p50"], first["took_max"]) == (pytest.approx(0.503, abs=0.004), 0.5)
    assert (second["took_p50"], second["took_max"]) == (1.5, 1.5)  # returned deliveries do not count


def test_delivery_missing_from_the_ledger_has_no_handling_time(deaths: Figures):
    first, _ = rows(deaths.minutes)
    assert (first["acked"], first["took_max"]) == (1, None)


def test_part_of_the_events_has_the_same_times_as_the_whole(spark: SparkSession):
    part = report(spark, frame(spark, STORY), since=NOON + dt.timedelta(seconds=95), until=NOON + dt.timedelta(1))
    (minute,) = rows(part.minutes)
    assert (minute["delivered"], minute["acked"], minute["took_max"]) == (0, 1, 1.5)


def test_attempts_show_the_share_of_acks_of_each(story: Figures):
    found = [
        (row["attempt"], row["delivered"], row["acked"], row["share"], row["reached"]) for row in rows(story.attempts)
    ]
    assert found == [(1, 2, 0, 0.0, 0.0), (2, 1, 0, 0.0, 0.0), (3, 3, 1, 0.5, 0.5)]


def test_deaths_are_grouped_by_their_common_error_text(deaths: Figures):
    found = rows(deaths.deaths)
    assert [(row["error"], row["deaths"]) for row in found] == [("rejected: order … of …, u_…, (404)", 3), ("", 1)]
    assert found[1]["first_at"] == NOON + dt.timedelta(minutes=1)


def test_buckets_are_a_32nd_wide_and_do_not_cross_a_power_of_two(spark: SparkSession):
    edges = [value for power in range(42) for value in (2**power - 1, 2**power, 2**power + 1)]
    found = spark.createDataFrame([(value,) for value in edges], "ms bigint")
    for row in found.withColumns({"low": bucket_of(found.ms), "high": top_of(bucket_of(found.ms))}).collect():
        assert row.low <= row.ms <= row.high
        assert row.low.bit_length() == row.ms.bit_length() == row.high.bit_length()
        assert row.high - row.low <= row.low / 32


def test_figures_equal_the_counts_of_the_queue_exactly(spark: SparkSession, redis_server: RedisServer):
    server = RedisOptions(redis_server.url)
    with server.queue("jobs", shards=2, events=True, lease=30) as queue:
        work_through(queue)
        stats = queue.stats()
    figures = report(spark, ledgers(spark, server, ["jobs"]))
    (told,) = rows(figures.queues)
    assert {name: told[name] for name in EVENTS} == {name: getattr(stats, name) for name in EVENTS}
    assert {row["below_ms"]: row["deliveries"] for row in rows(figures.lateness)} == stats.lateness
    assert min(stats.acked, stats.nacked, stats.died, stats.cancelled, stats.released, stats.requeued) > 50
    minutes = rows(figures.minutes)
    assert {name: sum(row[name] for row in minutes) for name in EVENTS} == {name: told[name] for name in EVENTS}
    assert sum(row["deaths"] for row in rows(figures.deaths)) == stats.died


def work_through(queue: Queue) -> None:
    """Let 3,000 messages be acked, cancelled, retried, lost, released, rejected and requeued, or wait."""
    queue.send_many([Outgoing({"n": n}, id=f"m{n}", delay=0 if n % 10 else 3600) for n in range(3000)])
    for n in range(0, 1000, 10):
        queue.cancel(f"m{n}")
    queue.receive(60, lease=0.001)  # never settled
    released: set[str] = set()
    while has_work(queue):
        messages = queue.receive(500, wait=0.01)
        queue.ack([message for message in messages if not settled(message, released)])
    assert queue.dead.requeue([info.id for info in queue.peek("dead", 70)]) == 70
    queue.ack(queue.receive(50))
    queue.dead.purge()


def has_work(queue: Queue) -> bool:
    stats = queue.stats()
    return bool(stats.ready + stats.unack + stats.retry or stats.pending > 200)


def settled(message: Message, released: set[str]) -> bool:
    """Give some messages an outcome other than an ack."""
    number = message.payload["n"]
    if number % 9 == 0 and message.attempt <= number % 4:
        message.nack(delay=0, error=f"ValueError: {number}")
    elif number % 11 == 0 and message.id not in released:
        released.add(message.id)
        message.release()
    elif number % 13 == 0:
        message.reject(f"rejected {number}")
    else:
        return False
    return True


def test_queue_without_a_ledger_is_refused(spark: SparkSession, redis_server: RedisServer):
    with pytest.raises(InvalidInput, match="keeps no ledger"):
        ledgers(spark, RedisOptions(redis_server.url), ["nothing"])
