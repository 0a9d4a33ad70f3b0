"""The job `archive` writes each entry of a ledger to Parquet once."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner
from delayq.cli import main
from pyspark.sql import SparkSession

from delayq import Queue
from delayq.errors import DataLost, InvalidInput, LakeMismatch, PipelineError
from delayq.model.placement import shard_of
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import StoredBatch
from delayq.spark.archiving.gaps import Loss
from delayq.spark.archiving.locks import exclusive_lock
from delayq.spark.jobs.archive import archive, events, table_of
from delayq.spark.redis_options import RedisOptions
from tests.harness.ledgers import append
from tests.harness.servers import RedisServer
from tests.harness.spark.killing import Killing
from tests.harness.spark.recorded import entries, named, seen

AT = 1_763_726_400_000  # noon, UTC
DAY = 86_400_000


@pytest.fixture
def server(redis_server: RedisServer) -> RedisOptions:
    return RedisOptions(redis_server.url)


@pytest.fixture
def queue(server: RedisOptions):
    """A queue of two shards with a ledger that is still empty."""
    with server.queue("jobs", shards=2) as queue:
        queue.configure(events=True)
        yield queue


def record(client: redis.Redis, count: int, first: int = 0) -> list[str]:
    """Append entries of several messages and two days; return what identifies each."""
    added = {f"m{i}": AT + (i % 2) * DAY for i in range(first, first + count)}
    return [named(shard_of(name, 2), append(client, name, "sent", at, shards=2, due=at)) for name, at in added.items()]


@pytest.mark.usefixtures("queue")
def test_next_run_archives_a_half_written_batch_once(
    spark: SparkSession, server: RedisOptions, redis_client: redis.Redis, tmp_path: Path
):
    known = record(redis_client, 20)
    killing = Killing([(folders, "move")], 2)
    with pytest.raises(PipelineError, match="Killed"):
        killing.run(lambda: archive(spark, server, ["jobs"], str(tmp_path)))
    assert 0 < len(set(entries(tmp_path))) == len(entries(tmp_path)) < 20
    known += record(redis_client, 10, first=20)
    found = archive(spark, server, ["jobs"], str(tmp_path))
    assert entries(tmp_path) == sorted(known)
    assert sorted(named(row.shard, row.entry) for row in found.collect()) == sorted(known)


def test_entries_dropped_before_they_were_archived_are_an_error_until_skipped(
    spark: SparkSession, server: RedisOptions, queue: Queue, redis_client: redis.Redis, tmp_path: Path
):
    path, url = str(tmp_path), str(server.options()["url"])
    known = record(redis_client, 4)
    archive(spark, server, ["jobs"], path)
    later = record(redis_client, 12, first=4)
    queue.events.trim(max_length=1, approximate=False)
    for _ in range(2):
        with pytest.raises(DataLost, match=r"were trimmed before they were read\. The remaining .* --skip-lost"):
            archive(spark, server, ["jobs"], path)
    assert entries(tmp_path) == sorted(known)

    words = ["pipeline", "archive", "jobs", "--to", path, "--skip-lost", "--json", "--url", url]
    done = CliRunner().invoke(main, words)
    ends, kept = dict(map(str.split, known)), dict(map(str.split, later))  # the last entry of each shard
    counts = Counter(each.partition(" ")[0] for each in later)
    known += [f"{shard} {entry}" for shard, entry in kept.items()]
    assert entries(tmp_path) == sorted(known)
    missing = [Loss("jobs", n, ends.get(s, "0-0"), kept[s], kept[s], counts[s] - 1) for n, s in enumerate("01")]
    assert json.loads(done.stdout) == {
        "archived": {"jobs": 2}, "lost": [loss._asdict() for loss in missing], "merged": 0, "into": 0
    }  # fmt: skip
    assert f"the archive of jobs lacks 5 of the entries after {ends['1']} up to" in done.stderr
    assert seen(tmp_path, "lost") == [loss._asdict() for loss in missing]

    known += record(redis_client, 4, first=16)
    archive(spark, server, ["jobs"], path)
    assert entries(tmp_path) == sorted(known)


def test_queue_without_a_ledger_is_refused(spark: SparkSession, server: RedisOptions, tmp_path: Path):
    with pytest.raises(InvalidInput, match="keeps no ledger"):
        archive(spark, server, ["nothing"], str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("queue")
def test_two_processes_cannot_archive_a_queue_to_the_same_place(
    spark: SparkSession, server: RedisOptions, tmp_path: Path
):
    work = table_of(str(tmp_path), "jobs").work
    with (
        exclusive_lock(f"{work}/archiving.lock", "archiving"),
        pytest.raises(LakeMismatch, match="another process is archiving"),
    ):
        archive(spark, server, ["jobs"], str(tmp_path))


@pytest.mark.usefixtures("queue")
def test_following_run_archives_new_entries_until_it_is_stopped(
    spark: SparkSession, server: RedisOptions, redis_client: redis.Redis, tmp_path: Path
):
    known = record(redis_client, 4)
    stored: list[StoredBatch] = []
    stop = threading.Event()
    fields = {"attempt": 2, "due": AT - 250, "late": 250, "consumer": "web-1", "reason": "it's over"}

    def tell(batch: StoredBatch) -> None:
        stored.append(batch)
        if len(stored) == 1:
            entry = append(redis_client, "order-42", "delivered", AT, shards=2, **fields)
            known.append(named(shard_of("order-42", 2), entry))
        else:
            stop.set()

    archive(spark, server, ["jobs"], str(tmp_path), follow=True, every=0.1, stop=stop, tell=tell)
    assert entries(tmp_path) == sorted(known)
    assert [each.rows for each in stored] == [4, 1]
    (row,) = (row for row in seen(tmp_path) if row["id"] == "order-42")
    assert (row["queue"], str(row["date"]), row["event"]) == ("jobs", "2025-11-21", "delivered")
    assert (row["attempt"], row["late"], row["consumer"], row["reason"]) == (2, 0.25, "web-1", "it's over")
    assert (row["at"].timestamp() * 1000, row["due_at"].timestamp() * 1000) == (AT, AT - 250)
    assert named(row["shard"], row["entry"]) == known[-1]


def test_new_archive_is_an_empty_table(spark: SparkSession, tmp_path: Path):
    assert events(spark, str(tmp_path / "none")).count() == 0
