"""Events counted batch by batch give the same figures as all of them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import redis
from click.testing import CliRunner
from delayq.cli import main
from pyspark.sql import DataFrame, SparkSession

from delayq.errors import DataLost, LakeMismatch, PipelineError
from delayq.lake.object_store import write_bytes
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable
from delayq.spark.archiving.gaps import Loss
from delayq.spark.archiving.streaming import AppendQuery
from delayq.spark.jobs import report as job
from delayq.spark.jobs.archive import archive
from delayq.spark.jobs.report import KEY, SCHEMA, TABLE, follow, report
from delayq.spark.redis_options import RedisOptions
from delayq.spark.reporting import counts
from delayq.spark.reporting.figures import Figures
from delayq.spark.reporting.incremental_counts import IncrementalCounts
from tests.harness.ledgers import append
from tests.harness.servers import RedisServer
from tests.harness.spark.killing import Killing
from tests.harness.spark.recorded import event, frame, seen

AT = 1_763_726_400_000  # a whole minute
WEEK = 7 * 86_400
# a fails, loses its lease, is returned and handed out again, and is acked by its third attempt; b dies.
STORY = [
    [
        event("delivered", 2, "a", attempt=1, late=0.04),
        event("delivered", 3, "b", attempt=1, late=0.0),
        event("nacked", 12.5, "a", attempt=1, reason="ValueError: no"),
        event("delivered", 61, "a", attempt=2, late=1.0),
        event("delivered", 80, "c", attempt=1, late=1.0),
    ],
    [
        event("died", 83.25, "b", attempt=1, reason="rejected: order 4711 is unknown"),
        event("lease_lost", 91, "a", attempt=2),
        event("delivered", 92, "a", attempt=3, late=0.5),
        event("released", 92.1, "a", attempt=3),
        event("delivered", 94, "a", attempt=3, late=0.02),
    ],
    [
        event("acked", 125.5, "a", attempt=3),
        event("acked", 126, "c", attempt=1),
        event("sent", 200, "d"),
    ],
]


@pytest.fixture
def table(tmp_path: Path) -> AppendTable:
    return AppendTable(str(tmp_path), TABLE, "jobs", "minute", SCHEMA, KEY)


def count(spark: SparkSession, table: AppendTable, number: int, events: list[dict[str, Any]]) -> None:
    """Count a batch in a process that has not counted any before."""
    AppendQuery(table, make=IncrementalCounts(table))(frame(spark, events), number)


def counted(spark: SparkSession, table: AppendTable) -> DataFrame:
    """Return the counts of the finished minutes."""
    path = f"{table.path}/counts"
    return spark.read.schema(counts.COLUMNS).option("basePath", path).parquet(path)


def waiting_for(table: AppendTable, number: int) -> list[str]:
    """Return the messages whose deliveries had not ended at the end of a batch."""
    ids: list[str] = pq.read_table(f"{table.work}/tally/{number}/open.parquet")["id"].to_pylist()
    return sorted(ids)


def test_batches_add_up_to_the_whole_even_if_one_is_killed_and_repeated(spark: SparkSession, table: AppendTable):
    for number, events in enumerate(STORY):
        if number == 2:
            with pytest.raises(PipelineError, match="batch 2 failed"):
                Killing([(folders, "move")], 0).run(lambda: count(spark, table, 2, STORY[2]))
        count(spark, table, number, events)
        assert waiting_for(table, number) == [["a", "b", "c"], ["a", "c"], []][number]
    whole = report(spark, frame(spark, [each for events in STORY for each in events]))
    told, wanted = (figures.minutes.toArrow().to_pylist() for figures in (Figures.of(counted(spark, table)), whole))
    assert told == wanted[:3]  # the fourth is not over
    assert [row["took_max"] for row in told] == [10.5, None, 46.0]
    assert folders.names(f"{table.work}/tally") == ["1", "2"]


def test_delivery_has_its_time_even_if_its_id_was_delivered_on_another_shard_since(
    spark: SparkSession, table: AppendTable
):
    """The shards are not read at the same moment: the entries a batch has of the second may be newer."""
    batches = [
        [event("delivered", 1, "a", attempt=1), event("delivered", 2.5, "a", attempt=1, shard=1)],
        [event("acked", 1.5, "a", attempt=1), event("nacked", 6.5, "a", attempt=1, shard=1), event("sent", 80, "b")],
    ]
    for number, events in enumerate(batches):
        count(spark, table, number, events)
    rows = Figures.of(counted(spark, table)).minutes.toArrow().to_pylist()
    whole = report(spark, frame(spark, [each for events in batches for each in events])).minutes.toArrow().to_pylist()
    assert rows == whole[:1]
    took = {row["event"]: row["longest"] for row in seen(Path(table.path), TABLE)}
    assert took == {"delivered": None, "acked": 0.5, "nacked": 4.0}


def test_unfinished_delivery_is_remembered_for_a_week(spark: SparkSession, table: AppendTable):
    count(spark, table, 0, [event("delivered", 0, "a", attempt=1), event("delivered", 120, "b", attempt=1)])
    count(spark, table, 1, [event("sent", WEEK + 71, "c")])
    assert waiting_for(table, 1) == ["b"]
    count(spark, table, 2, [event(name, WEEK + 72, id, attempt=1) for id, name in (("a", "acked"), ("b", "acked"))])
    count(spark, table, 3, [event("sent", WEEK + 200, "d")])
    found = [(row["n"], row["longest"]) for row in seen(Path(table.path), TABLE) if row["event"] == "acked"]
    assert sorted(found, key=str) == [(1, WEEK + 72 - 120.0), (1, None)]


def test_batch_without_the_state_of_the_previous_one_is_refused(spark: SparkSession, table: AppendTable):
    growing = AppendQuery(table, make=IncrementalCounts(table))
    with pytest.raises(PipelineError):
        growing(frame(spark, STORY[1]), 1)
    assert isinstance(growing.error, LakeMismatch)
    assert "with which batch 1 begins: restore it" in str(growing.error)


def test_folder_of_an_older_version_without_tallies_is_refused_at_once(
    spark: SparkSession, table: AppendTable, redis_server: RedisServer
):
    server = RedisOptions(redis_server.url)
    with server.queue("jobs") as queue:
        queue.configure(events=True)
    write_bytes(f"{table.checkpoint}/commits/0", b"v1\n{}")
    with pytest.raises(LakeMismatch, match=r"tally has nothing to continue from .* begin in another folder"):
        follow(spark, server, ["jobs"], table.path, until_now=True)
    assert folders.names(table.checkpoint) == ["commits"]


def test_archive_refuses_the_folder_of_a_following_report(
    spark: SparkSession, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setattr(job, "save", lambda *_: None)
    server, path = RedisOptions(redis_server.url), str(tmp_path)
    with server.queue("jobs") as queue:
        queue.configure(events=True)
        append(redis_client, "m", "sent", AT)
    follow(spark, server, ["jobs"], path, until_now=True)
    with pytest.raises(LakeMismatch, match=r"has the counts of queue jobs, .* keep its events in another folder"):
        archive(spark, server, ["jobs"], path)


def test_entries_dropped_before_they_were_counted_are_an_error_until_skipped(
    spark: SparkSession, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):  # fmt: skip
    monkeypatch.setattr(job, "save", lambda *_: None)  # it takes longest, and is not what this test checks
    server, path = RedisOptions(redis_server.url), str(tmp_path)
    with server.queue("jobs") as queue:
        queue.configure(events=True)
        added = [append(redis_client, f"m{i}", "sent", AT) for i in range(8)]
        with pytest.raises(PipelineError, match="Killed"):
            Killing([(folders, "remove_folder")], 0).run(lambda: follow(spark, server, ["jobs"], path, until_now=True))
        queue.events.trim(max_length=2, approximate=False)
    with pytest.raises(DataLost, match=r"6 of the entries .* The remaining entries can be counted with --skip-lost"):
        follow(spark, server, ["jobs"], path, until_now=True)
    calls: list[Loss] = []
    follow(spark, server, ["jobs"], path, until_now=True, skip_lost=True, tell_loss=calls.append)
    assert calls == [Loss("jobs", 0, "0-0", added[6], added[7], 6)]
    assert seen(tmp_path, "lost") == [calls[0]._asdict()]


def test_only_a_following_report_can_skip_losses():
    done = CliRunner().invoke(main, ["pipeline", "report", "jobs", "--to", "report", "--skip-lost"])
    assert (done.exit_code, "--skip-lost needs --follow" in done.stderr) == (2, True)
