"""`delayq pipeline archive` and `report`, stopped by a real SIGTERM in the middle and then resumed."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import redis
from click.testing import CliRunner, Result
from delayq.cli import main
from delayq.cli.pipeline import spark_session
from pyspark.sql import SparkSession

from delayq.spark.jobs import report as reporting
from delayq.spark.jobs.report import follow
from delayq.spark.redis_options import RedisOptions
from tests.harness.ledgers import append
from tests.harness.servers import RedisServer
from tests.harness.spark.recorded import entries, named
from tests.harness.waiting import eventually

Invoke = Callable[..., Result]

AT = 1_763_726_400_000  # 2025-11-21 12:00, UTC
MINUTE = 60_000


@pytest.fixture
def invoke(spark: SparkSession, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Run a job in this process and its Spark session, on a server with the queue jobs, which has a ledger."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELAYQ_URL", redis_server.url)
    monkeypatch.setattr(SparkSession, "stop", lambda _: None)  # the next test uses it too
    monkeypatch.setattr(spark_session, "session", lambda *_: spark)
    with RedisOptions(redis_server.url).queue("jobs") as queue:
        queue.configure(events=True)
    return lambda *words: CliRunner().invoke(main, ["pipeline", *words])


def record(client: redis.Redis, count: int, minute: int = 0) -> list[str]:
    """Append a message every 5 s from a given minute on; return what identifies each entry."""
    times = [AT + minute * MINUTE + number * 5000 for number in range(count)]
    return [named(0, append(client, f"m{at}", "sent", at, due=at)) for at in times]


@contextmanager
def stopped(when: Callable[[], bool]) -> Iterator[None]:
    """Send this process a SIGTERM as soon as a condition holds."""

    def stop() -> None:
        if eventually(when):
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    thread.start()
    yield
    thread.join()


def test_archive_stopped_in_the_middle_says_so_and_can_be_resumed(
    invoke: Invoke, redis_client: redis.Redis, tmp_path: Path
):
    known = record(redis_client, 40)
    with stopped(lambda: len(list((tmp_path / "archive" / "events").rglob("*.parquet"))) > 1):
        first = invoke("archive", "jobs", "--to", "archive", "--batch", "1", "--json")
    assert first.exit_code == 1, first.output
    assert first.stderr.endswith("delayq: stopped before all was archived: run it again to continue\n")
    done = json.loads(first.stdout)["archived"]["jobs"]
    assert 0 < done < 40
    rest = invoke("archive", "--all", "--to", "archive")
    assert rest.stdout == f"archived {40 - done} events of jobs to archive\n", rest.output
    assert entries(tmp_path / "archive") == sorted(known)
    files = len(list((tmp_path / "archive" / "events").rglob("*.parquet"))) - 1  # the last batch may be repeated
    compacted = invoke("archive", "--compact", "--before", "2025-11-22", "--to", "archive", "--json")
    assert json.loads(compacted.stdout) == {"archived": {}, "lost": [], "merged": files, "into": 1}
    assert entries(tmp_path / "archive") == sorted(known)


def test_following_report_exits_cleanly_when_stopped_and_can_be_resumed(
    spark: SparkSession, invoke: Invoke, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setattr(reporting, "FOLLOW_EVERY", "100 milliseconds")
    page = tmp_path / "page"
    minutes = page / "figures" / "minutes.parquet"
    known = [record(redis_client, 10)]

    def has_two_minutes() -> bool:
        if not (page / "report.html").exists():  # there is a page before the first minute is over
            return False
        if len(known) == 1:
            known.extend(record(redis_client, 10, minute) for minute in range(1, 3))
        return bool(pq.read_metadata(minutes).num_rows == 2)

    with stopped(has_two_minutes):
        result = invoke("report", "jobs", "--to", "page", "--follow", "--json")
    assert (result.exit_code, json.loads(result.stdout)["sent"]) == (0, 20), result.output
    assert pq.read_table(page / "figures" / "queues.parquet")["sent"].to_pylist() == [20]
    record(redis_client, 10, 3)
    figures = follow(spark, RedisOptions(redis_server.url), ["jobs"], str(page), until_now=True)
    assert [row.sent for row in figures.queues.collect()] == [30]
    assert pq.read_table(minutes)["sent"].to_pylist() == [10, 10, 10]


def test_report_covers_the_given_time_range(invoke: Invoke, redis_client: redis.Redis):
    for minute in range(4):
        record(redis_client, 10 + minute, minute)
    nothing = invoke("report", "jobs", "--to", "page", "--since", "2025-11-22T00:00Z")
    assert (nothing.exit_code, nothing.stdout) == (0, "see page/report.html\n"), nothing.output
    since, until = ("2025-11-21T12:01Z", "2025-11-21T13:03+01:00")
    result = invoke("report", "jobs", "--to", "page", "--since", since, "--until", until, "--json")
    assert (result.exit_code, json.loads(result.stdout)["sent"]) == (0, 11 + 12), result.output
