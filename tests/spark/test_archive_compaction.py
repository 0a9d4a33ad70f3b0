"""Compaction never loses or duplicates a row, wherever it is killed."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from delayq.errors import LakeMismatch
from delayq.lake import object_store
from delayq.lake.object_store import write_table
from delayq.spark.archiving import compaction, folders
from delayq.spark.archiving.append_table import AppendTable
from delayq.spark.archiving.compaction import Compacted, compact, recover
from delayq.spark.archiving.locks import exclusive_lock
from delayq.spark.jobs.archive import SCHEMA, table_of
from tests.harness.spark.killing import Killing
from tests.harness.spark.recorded import entries, event

STEPS = [
    *((folders, name) for name in ("move", "remove_folder", "sync")),
    (object_store, "remove"),
    *((compaction, name) for name in ("write_bytes", "write_json")),
]
DAYS = ("2026-11-20", "2026-11-21")
TODAY = dt.date(2026, 11, 22)


def filled(path: Path, batches: int = 4) -> AppendTable:
    """A table of some batches, each with one file of one row per day."""
    table = table_of(str(path), "jobs")
    for number in range(batches):
        for day in DAYS:
            row = event("sent", number, f"{day}-{number}", entry=f"{day}-{number}")
            rows = pa.Table.from_pylist([row], SCHEMA)
            write_table(f"{table.folder}/date={day}/batch-{number:010d}-00000.parquet", rows)
    return table


def names(table: AppendTable, day: str) -> list[str]:
    return sorted(path.name for path in (Path(table.folder) / f"date={day}").iterdir())


def compact_again(table: AppendTable) -> None:
    compact(table, TODAY)


@pytest.mark.parametrize("heal", [recover, compact_again])
def test_compaction_killed_at_any_step_loses_and_duplicates_nothing(
    heal: Callable[[AppendTable], None], tmp_path: Path
):
    step, was_killed = 0, True
    while was_killed:
        path = tmp_path / str(step)
        table = filled(path)
        whole = entries(path)

        def look(path: Path = path, whole: list[str] = whole) -> None:
            found = entries(path)
            assert len(found) == len(set(found))
            assert set(found) <= set(whole)

        was_killed = Killing(STEPS, step, look).run(partial(compact, table, TODAY))
        heal(table)
        assert entries(path) == whole
        assert not folders.names(f"{table.work}/intents")
        assert compact(table, TODAY).files in {0, 3, 6}
        assert entries(path) == whole
        step += 1
    assert step > 2 * 8  # for each day: write, decide, remove three, sync, move, forget


def test_small_files_of_a_day_are_merged_into_one(tmp_path: Path):
    table = filled(tmp_path)
    assert compact(table, TODAY) == Compacted(files=6, into=2, rows=6)
    for day in DAYS:
        last, merged = names(table, day)
        assert last == "batch-0000000003-00000.parquet"  # it may be repeated
        assert merged.startswith("merged-0000000002-")
    assert compact(table, TODAY) == Compacted()


def test_unfinished_days_and_large_files_are_left_alone(tmp_path: Path):
    table = filled(tmp_path)
    before = names(table, DAYS[1])
    assert compact(table, dt.date(2026, 11, 21)) == Compacted(files=3, into=1, rows=3)
    assert names(table, DAYS[1]) == before
    assert compact(table, TODAY, target=1) == Compacted()


def test_files_are_merged_up_to_a_size(tmp_path: Path):
    table = filled(tmp_path, batches=9)
    size = max(folders.files(table.folder).values())
    assert compact(table, TODAY, target=2 * size) == Compacted(files=16, into=8, rows=16)


def test_file_of_another_program_is_named(tmp_path: Path):
    table = filled(tmp_path)
    (Path(table.folder) / "date=2026-11-20" / "mine.parquet").touch()
    with pytest.raises(LakeMismatch, match=r"mine\.parquet"):
        compact(table, TODAY)


def test_two_compactions_of_a_table_cannot_run_at_the_same_time(tmp_path: Path):
    table = filled(tmp_path)
    with (
        exclusive_lock(f"{table.work}/compacting.lock", "compacting"),
        pytest.raises(LakeMismatch, match="another process is compacting"),
    ):
        compact(table, TODAY)
    assert compact(table, TODAY).into == 2


def test_readers_do_not_repair_a_running_compaction(tmp_path: Path):
    table = filled(tmp_path)
    assert Killing(STEPS, 4).run(lambda: compact(table, TODAY))
    left = entries(tmp_path)
    with exclusive_lock(f"{table.work}/compacting.lock", "compacting"):
        recover(table)
    assert entries(tmp_path) == left
    recover(table)
    assert len(entries(tmp_path)) == 8


def test_repairing_reader_keeps_what_a_compaction_has_just_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Without locks, the second merge can be decided while the reader completes the first."""
    table = filled(tmp_path)
    whole = entries(tmp_path)
    first, second = compaction._plan(table, TODAY.isoformat(), compaction.TARGET_BYTES)
    finish, remove = compaction._finish, object_store.remove

    def decide_on(merge: compaction.Merge) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "_finish", lambda *_: None)
            compaction._merge(table, merge)

    def decide_meanwhile(path: str) -> None:
        remove(path)
        if path.endswith(f"{first.name}.json"):
            decide_on(second)

    decide_on(first)
    with monkeypatch.context() as patch:
        patch.setattr(object_store, "remove", decide_meanwhile)
        recover(table)
    finish(table, second)
    assert entries(tmp_path) == whole


def test_merge_without_its_new_file_deletes_no_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table = filled(tmp_path)
    whole = entries(tmp_path)
    monkeypatch.setattr(compaction, "_finish", lambda *_: None)
    compact(table, TODAY)
    monkeypatch.undo()
    folders.remove_folder(f"{table.work}/merged")
    with pytest.raises(LakeMismatch, match="restore it from a backup"):
        compact(table, TODAY)
    assert entries(tmp_path) == whole
