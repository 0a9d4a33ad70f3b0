"""A batch is in a table once, wherever the process that adds it is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delayq.errors import DataLost, InvalidInput, LakeMismatch, PipelineError
from delayq.lake import object_store
from delayq.lake.object_store import write_table
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable, StoredBatch
from delayq.spark.archiving.streaming import AppendQuery
from delayq.spark.jobs.archive import SCHEMA, table_of
from tests.harness.spark.killing import Killing
from tests.harness.spark.recorded import LEDGER, NOON, entries, event, frame, named, seen

STEPS = [
    *((folders, name) for name in ("move", "remove_folder", "settle", "sync")),
    (object_store, "remove"),
]
TWO_DAYS = [event("sent", seconds, f"m{seconds}") for seconds in (0, 1, 50_000, 50_001)]
LATER = [event("acked", seconds, f"m{seconds}") for seconds in (60_000, 60_001)]


@pytest.fixture
def table(tmp_path: Path) -> AppendTable:
    return table_of(str(tmp_path), "jobs")


def staged(table: AppendTable, files: int) -> str:
    """Write the rest of a batch as Spark's tasks do: each writes one file per day."""
    folder = f"{table.work}/staging/try-{files}"
    there = entries(Path(table.path))
    left = [row for row in TWO_DAYS if named(0, row["entry"]) not in there]
    for day in {row["at"].date() for row in left}:
        rows = [row for row in left if row["at"].date() == day]
        for i in range(files):
            write_table(f"{folder}/date={day}/{i}.parquet", pa.Table.from_pylist(rows[i::files], SCHEMA))
    return folder


@pytest.mark.parametrize("again", [1, 2], ids=["as it was", "by more tasks"])
def test_batch_killed_at_any_step_is_in_the_table_once_after_a_repeat(again: int, tmp_path: Path):
    whole = sorted(named(0, row["entry"]) for row in TWO_DAYS)
    step, was_killed = 0, True
    while was_killed:
        path = tmp_path / str(step)
        table = table_of(str(path), "jobs")
        known: set[str] = set()

        def work(files: int, table: AppendTable = table) -> None:
            table.take_in(staged(table, files), 7, len(table.of_batch(7)))

        def look(path: Path = path, known: set[str] = known) -> None:
            found = entries(path)
            assert len(found) == len(set(found))
            assert known <= set(found)
            known.update(found)

        was_killed = Killing(STEPS, step, look).run(lambda: work(2))
        assert Killing(STEPS, -1, look).run(lambda: work(again)) is False
        assert entries(path) == whole
        step += 1
    assert step > 2 * 2 * 3  # two files for each of two days: write to disk, move to the table, record


def error_of(table: AppendTable, batch: Any, number: int) -> BaseException | None:
    """The cause of a batch's failure, which Spark itself does not get to know."""
    growing = AppendQuery(table)
    with pytest.raises(PipelineError, match=f"batch {number} failed"):
        growing(batch, number)
    return growing.error


def test_batch_that_cannot_be_rewritten_is_unchanged(tmp_path: Path):
    """Its entries may have been dropped from the ledger since."""

    class Gone:
        @property
        def sparkSession(self) -> NoReturn:  # noqa: N802  # Spark's name
            raise DataLost("some entries have been trimmed while they were read")

    table = table_of(str(tmp_path), "jobs")
    table.take_in(staged(table, 2), 7)
    before = entries(tmp_path)
    again: Any = Gone()
    assert isinstance(error_of(table, again, 7), DataLost)
    assert entries(tmp_path) == before != []


def test_loss_found_by_a_task_is_reported_as_a_loss(spark: SparkSession, table: AppendTable):
    def lose(_: int) -> NoReturn:
        raise DataLost("some entries have been trimmed while they were read")

    rows = spark.createDataFrame(spark.sparkContext.range(1, numSlices=1).map(lose), LEDGER)
    error = error_of(table, rows, 0)
    assert isinstance(error, DataLost)
    assert str(error) == "some entries have been trimmed while they were read"


def test_other_readers_than_spark_find_columns_and_folders(spark: SparkSession, tmp_path: Path):
    table = table_of(str(tmp_path), "a/b 100%")
    AppendQuery(table)(frame(spark, [event("nacked", 0.25, attempt=2, reason="no")]), 0)
    (row,) = seen(tmp_path)
    assert row["queue"] == "a/b 100%"
    assert str(row["date"]) == "2026-11-21"
    assert (row["id"], row["event"], row["attempt"], row["reason"], row["late"]) == ("a", "nacked", 2, "no", None)
    assert (row["at"] - NOON).total_seconds() == 0.25
    assert {path.suffix for path in (tmp_path / "events").rglob("*") if path.is_file()} == {".parquet"}


def test_batches_of_a_run_follow_one_another(spark: SparkSession, tmp_path: Path, table: AppendTable):
    stored: list[StoredBatch] = []
    growing = AppendQuery(table, stored.append)
    growing(frame(spark, TWO_DAYS), 0)
    growing(frame(spark, LATER), 1)
    assert entries(tmp_path) == sorted(named(0, row["entry"]) for row in TWO_DAYS + LATER)
    assert [(each.queue, each.number, each.rows) for each in stored] == [("jobs", 0, 4), ("jobs", 1, 2)]
    assert not (tmp_path / "_work" / "queue=jobs" / "staging").exists()


def test_repeated_batch_with_fewer_entries_left_keeps_what_it_had(
    spark: SparkSession, tmp_path: Path, table: AppendTable
):
    """The ledger has dropped some entries since, and may have had others that are in no file yet."""
    AppendQuery(table)(frame(spark, TWO_DAYS[:3]), 0)
    stored: list[StoredBatch] = []
    AppendQuery(table, stored.append)(frame(spark, TWO_DAYS[2:]), 0)
    assert entries(tmp_path) == sorted(named(0, row["entry"]) for row in TWO_DAYS)
    assert [each.rows for each in stored] == [1]


def test_table_with_later_batches_than_its_checkpoint_is_left_alone(
    spark: SparkSession, tmp_path: Path, table: AppendTable
):
    growing = AppendQuery(table)
    growing(frame(spark, TWO_DAYS), 0)
    growing(frame(spark, LATER), 1)
    before = entries(tmp_path)
    error = error_of(table, frame(spark, TWO_DAYS), 0)
    assert isinstance(error, LakeMismatch)
    assert "old copy" in str(error)
    assert entries(tmp_path) == before


def test_table_without_its_checkpoint_is_refused(spark: SparkSession, table: AppendTable):
    AppendQuery(table)(frame(spark, TWO_DAYS), 0)
    with pytest.raises(LakeMismatch, match="checkpoint is gone"):
        table.check()


def test_queue_name_too_long_for_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(InvalidInput, match="used as a folder name"):
        _ = table_of(str(tmp_path), "ü" * 64).folder
