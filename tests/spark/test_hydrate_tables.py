"""The jobs `defer` and `hydrate`: Spark tasks write tables into the lake, and load its hours into Redis."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from delayq import InvalidInput, Queue
from delayq.errors import LakeMismatch, RowRefused
from delayq.lake.layout import DeferRun
from delayq.lake.queue_folder import QueueFolder
from delayq.spark.jobs import defer as deferring
from delayq.spark.jobs.defer import defer
from delayq.spark.jobs.hydrate import TaskLoader, hydrate
from delayq.spark.redis_options import RedisOptions
from delayq.spark.writing.rows import Rows
from tests.harness.lake.lakes import DAY, HORIZON, HOUR, START, Clock, delivered, far_queue, files
from tests.harness.servers import RedisServer

ROWS = 60
LATER = START + dt.timedelta(days=1)


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock) -> Iterator[Queue]:
    with far_queue(redis_server.url, lake, clock) as opened:
        yield opened


def table(spark: SparkSession, more: str = "CAST(NULL AS STRING) AS id") -> DataFrame:
    """Messages due every three minutes in the three hours from LATER on."""
    due = f"timestampadd(SECOND, 180 * id, TIMESTAMP'{LATER.isoformat()}') AS due_at"
    return spark.range(0, ROWS, 1, 3).selectExpr("concat('m', id) AS payload", due, more)


def loaded(spark: SparkSession, server: RedisServer, lake: Path, clock: Clock, **options: Any) -> dict[str, int]:
    """Hydrate; return the sums."""
    rows = hydrate(spark, str(lake), RedisOptions(server.url), HORIZON, now=clock.now, **options).collect()
    return {name: sum(row[name] for row in rows) for name in ("rows", "sent", "existing", "cancelled", "held")}


def test_deferred_table_is_stored_by_hour_and_loaded_once(
    spark: SparkSession, queue: Queue, redis_server: RedisServer, lake: Path, clock: Clock
):
    report = defer(spark, table(spark), str(lake), "jobs", run="r").collect()
    assert [(row["hour"], row["rows"]) for row in report] == [(f"2030-01-02T{hour}", 20) for hour in (12, 13, 14)]
    assert loaded(spark, redis_server, lake, clock)["rows"] == 0
    clock.later(DAY)
    assert loaded(spark, redis_server, lake, clock) == {
        "rows": 60,
        "sent": 60,
        "existing": 0,
        "cancelled": 0,
        "held": 0,
    }
    assert loaded(spark, redis_server, lake, clock)["rows"] == 0
    clock.later(3 * HOUR)
    messages = delivered(queue)
    assert sorted(each.payload for each in messages) == sorted(f"m{n}" for n in range(ROWS))
    assert all(each.due_at == LATER + dt.timedelta(minutes=3 * int(each.payload[1:])) for each in messages)


def test_repeated_run_replaces_its_own_files_and_duplicates_nothing(
    spark: SparkSession, redis_server: RedisServer, lake: Path, clock: Clock
):
    defer(spark, table(spark), str(lake), "jobs", run="other")
    defer(spark, table(spark).limit(7), str(lake), "jobs", run="r")
    defer(spark, table(spark), str(lake), "jobs", run="r")
    before = files(lake)
    assert len(before) == 6
    clock.later(DAY - HOUR)
    assert loaded(spark, redis_server, lake, clock)["sent"] == 80
    defer(spark, table(spark), str(lake), "jobs", run="r")
    assert files(lake) == before
    clock.later(2 * HOUR)
    assert loaded(spark, redis_server, lake, clock)["sent"] == 40
    assert loaded(spark, redis_server, lake, clock)["rows"] == 0


def test_deferred_row_can_be_found_cancelled_and_moved_by_id(
    spark: SparkSession, queue: Queue, redis_server: RedisServer, lake: Path, clock: Clock
):
    defer(spark, table(spark, "concat('id-', id) AS id"), str(lake), "jobs")
    info = queue.get("id-30")
    assert info is not None
    assert (info.state, info.payload, info.due_at) == ("deferred", "m30", LATER + dt.timedelta(minutes=90))
    assert (queue.cancel("id-30"), queue.reschedule("id-31", at=LATER + dt.timedelta(days=9))) == (
        "cancelled",
        "rescheduled",
    )
    clock.later(DAY + 3 * HOUR)
    assert loaded(spark, redis_server, lake, clock) == {
        "rows": 60,
        "sent": 58,
        "existing": 0,
        "cancelled": 2,
        "held": 0,
    }
    clock.later(9 * DAY)
    assert loaded(spark, redis_server, lake, clock)["sent"] == 1
    assert [each.id for each in delivered(queue)][-1] == "id-31"


def test_first_of_several_rows_with_the_same_id_is_loaded_and_the_others_are_counted(
    spark: SparkSession, queue: Queue, redis_server: RedisServer, lake: Path, clock: Clock
):
    twice = table(spark, "IF(id % 4 = 0, NULL, concat('id-', id % 30)) AS ID")  # in hours 1 and 2, or 2 and 3
    invalid = spark.range(1).selectExpr(
        "CAST(NULL AS STRING) AS payload", f"TIMESTAMP'{LATER.isoformat()}' - INTERVAL 1 DAY AS due_at", "'id-1' AS ID"
    )
    for _ in range(2):
        defer(
            spark, invalid.union(twice).toDF("Payload", "DUE_AT", "ID"), str(lake), "jobs", run="r", rejects=f"{lake}/r"
        )
        done = QueueFolder(str(lake), "jobs").run("r")
        assert done is not None
        assert (done.repeated, done.rejected) == (16, 0)
    clock.later(2 * DAY)
    assert loaded(spark, redis_server, lake, clock)["sent"] == 45
    first = {n % 30: f"m{n}" for n in reversed(range(ROWS)) if n % 4}
    sent = [each for each in delivered(queue) if each.id.startswith("id-")]
    assert {each.id: each.payload for each in sent} == {f"id-{n}": payload for n, payload in first.items()}


def test_load_interrupted_after_its_tasks_is_completed_by_the_next(
    spark: SparkSession,
    queue: Queue,
    redis_server: RedisServer,
    lake: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
):
    defer(spark, table(spark), str(lake), "jobs")
    clock.later(DAY + 3 * HOUR)
    original = TaskLoader.run

    def then_fail(*args: Any) -> None:
        original(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(TaskLoader, "run", then_fail)
    with pytest.raises(KeyboardInterrupt):
        loaded(spark, redis_server, lake, clock)
    monkeypatch.undo()
    assert len(delivered(queue)) == ROWS
    assert loaded(spark, redis_server, lake, clock) == {
        "rows": 60,
        "sent": 0,
        "existing": 60,
        "cancelled": 0,
        "held": 0,
    }
    assert delivered(queue) == []


def test_lake_refuses_what_a_send_refuses(spark: SparkSession, lake: Path, tmp_path: Path):
    bad = [
        "IF(payload = 'm7', NULL, payload) AS payload",
        "CASE payload WHEN 'm3' THEN timestamp_seconds(1893456000000) WHEN 'm4' THEN NULL ELSE due_at END AS due_at",
        "IF(payload = 'm4', 1e300, NULL) AS delay",
    ]
    rows = table(spark).limit(10).selectExpr(*bad)
    with pytest.raises(RowRefused, match="cannot be sent"):
        defer(spark, rows, str(lake), "jobs")
    assert files(lake) == []
    report = defer(spark, rows, str(lake), "jobs", run="r", rejects=str(tmp_path / "rejects")).collect()
    done = QueueFolder(str(lake), "jobs").run("r")
    assert done is not None
    assert (sum(row["rows"] for row in report), done.rejected) == (7, 3)
    reasons = [
        row["reason"]
        for path in files(tmp_path / "rejects")
        for row in pq.read_table(path, columns=["reason"]).to_pylist()
    ]
    assert [reason[:16] for reason in sorted(reasons)] == ["delay 1e+300 is ", "due_at is 189345", "payload is null"]


def test_rejects_of_a_run_are_only_those_of_its_last_attempt(
    spark: SparkSession, lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = table(spark).selectExpr("CAST(NULL AS STRING) AS payload", "due_at").limit(60)
    by_hours = deferring._by_hours  # it decides how many tasks there are
    for tasks in (3, 1):
        monkeypatch.setattr(deferring, "_by_hours", lambda *given, tasks=tasks: by_hours(*given).repartition(tasks))
        defer(spark, rows, str(lake), "jobs", run="r", rejects=str(tmp_path / "rejects"))
        assert sum(pq.read_metadata(each).num_rows for each in files(tmp_path / "rejects")) == 60


def test_bad_names_and_columns_are_refused_before_anything_is_written(spark: SparkSession, lake: Path):
    with pytest.raises(InvalidInput, match=r"run '\.\./r'"):
        defer(spark, table(spark), str(lake), "jobs", run="../r")
    with pytest.raises(InvalidInput, match="column 'colour'"):
        defer(spark, table(spark, "1 AS colour"), str(lake), "jobs")
    assert not lake.exists()


def test_large_hours_are_split_into_files_of_bounded_size(
    spark: SparkSession, lake: Path, monkeypatch: pytest.MonkeyPatch
):
    """Run in this process, because Spark's tasks do not see what a test patches."""
    monkeypatch.setattr(deferring, "FILE_ROWS", 8)
    rows = table(spark).limit(20)
    writer = deferring.DeferWriter(QueueFolder(str(lake), "jobs"), DeferRun("r", 0), Rows(rows.schema), None, 1000)
    batches = (
        rows.selectExpr("*", f"1 AS {deferring.HOUR}", f"0 AS {deferring.COPY}").toArrow().to_batches(max_chunksize=3)
    )
    names = [path.rpartition("/")[2] for path in writer.write(iter(batches)).files]
    assert [name.split(".")[:2] for name in names] == [["r-0", "8"], ["r-1", "8"], ["r-2", "4"]]


def test_failure_of_one_queue_does_not_hold_up_another(
    spark: SparkSession, redis_server: RedisServer, lake: Path, clock: Clock
):
    for name in ("broken", "well"):
        defer(spark, table(spark).limit(5), str(lake), name)
    files(lake / "queue=broken")[0].write_bytes(b"")
    clock.later(2 * DAY)
    with pytest.raises(LakeMismatch, match="queue=broken"):
        loaded(spark, redis_server, lake, clock)
    with Queue("well", url=redis_server.url) as well:
        assert well.stats().sent == 5
