"""Compaction: merge the small files of a day into one.

No file system changes several files at once, so for an instant a reader sees the rows of a merge either twice or not at
all. This uses the second way: it removes the small files, then moves in the large one, which is complete by then. The
gap is as long as it takes to remove the files, a millisecond for some dozens on a disk. A reader that listed the folder
before fails, as its files are gone. Days that are still written to are therefore skipped unless you ask for them.

The plan is written down before a merge begins. If the merge is killed, the next delayq program that reads the archive
completes it. Until then rows may be missing, but none is there twice.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager
from itertools import groupby
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from delayq.errors import LakeMismatch
from delayq.lake import object_store
from delayq.lake.object_store import LEVEL, parquet, place, write_bytes, write_json
from delayq.lake.shown_path import shown
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable, batch_of
from delayq.spark.archiving.locks import exclusive_lock

TARGET_BYTES = 64 * 1024 * 1024
"""A file of this size is large enough: a million entries, which Spark reads in a second."""


class Compacted(NamedTuple):
    """The result of a compaction.

    Attributes:
        files: how many files were merged.
        into: into how many files.
        rows: how many rows they contain.
    """

    files: int = 0
    into: int = 0
    rows: int = 0


class Merge(msgspec.Struct, frozen=True):
    """Files of a day to merge into one.

    Attributes:
        files: their paths in the table's folder.
        into: the path of the new one.
    """

    files: list[str]
    into: str

    @property
    def name(self) -> str:
        """Return the new file's name."""
        return self.into.rpartition("/")[2]


def compact(table: AppendTable, before: dt.date | None = None, target: int = TARGET_BYTES) -> Compacted:
    """Merge the small files of each day of a table.

    Args:
        before: only days before this one; None is today, in UTC.
        target: bytes from which a file does not count as small.

    Raises:
        LakeMismatch: another process is compacting the table.
    """
    day = (before or dt.datetime.now(dt.UTC).date()).isoformat()
    done = Compacted()
    with _alone(table):
        _finish_all(table)
        folders.remove_folder(_merged(table))  # merges without a plan; only here, as readers may recover at any time
        for merge in _plan(table, day, target):
            rows = _merge(table, merge)
            done = Compacted(done.files + len(merge.files), done.into + 1, done.rows + rows)
    return done


def recover(table: AppendTable) -> None:
    """Complete what a killed compaction left unfinished; a running one completes itself."""
    if not folders.names(_intents(table)):
        return
    try:
        with _alone(table):
            _finish_all(table)
    except LakeMismatch:
        return


def _alone(table: AppendTable) -> AbstractContextManager[None]:
    return exclusive_lock(f"{table.work}/compacting.lock", f"compacting {shown(table.folder)}")


def _intents(table: AppendTable) -> str:
    return f"{table.work}/intents"


def _merged(table: AppendTable) -> str:
    return f"{table.work}/merged"


def _plan(table: AppendTable, day: str, target: int) -> Iterator[Merge]:
    sizes = folders.files(table.folder)
    # Spark may not have recorded the last batch as done: it may repeat it, and must then find its files.
    last = max(map(batch_of, sizes), default=0)
    small = [name for name, size in sizes.items() if size < target and batch_of(name) < last]
    for date, names in groupby(small, lambda name: name.partition("/")[0]):
        if date < f"date={day}":
            yield from _grouped(date, list(names), sizes, target)


def _grouped(date: str, names: list[str], sizes: dict[str, int], target: int) -> Iterator[Merge]:
    group: list[str] = []
    for name in [*names, None]:
        if name is not None and sum(sizes[each] for each in group) < target:
            group.append(name)
            continue
        if len(group) > 1:
            last = max(map(batch_of, group))
            yield Merge(group, f"{date}/merged-{last:010d}-{uuid.uuid4().hex}.parquet")
        group = [] if name is None else [name]


def _merge(table: AppendTable, merge: Merge) -> int:
    data, rows = _read(table, merge.files)
    write_bytes(f"{_merged(table)}/{merge.name}", data)
    write_json(f"{_intents(table)}/{merge.name}.json", merge)
    _finish(table, merge)
    return rows


def _read(table: AppendTable, files: list[str]) -> tuple[pa.Buffer, int]:
    """Return the contents of the files as one file."""
    system, inner = place(table.folder)
    found = ds.dataset([f"{inner}/{name}" for name in files], table.schema, "parquet", system)
    sink, rows = pa.BufferOutputStream(), 0
    with (
        parquet(table.folder),
        pq.ParquetWriter(sink, table.schema, compression="zstd", compression_level=LEVEL) as writer,
    ):
        for batch in found.to_batches():
            writer.write_batch(batch)
            rows += batch.num_rows
    return sink.getvalue(), rows


def _finish_all(table: AppendTable) -> None:
    """Complete each planned merge."""
    for name in folders.names(_intents(table)):
        _finish(table, msgspec.json.decode(object_store.read_bytes(f"{_intents(table)}/{name}"), type=Merge))


def _finish(table: AppendTable, merge: Merge) -> None:
    """Complete a merge; each step may already be done.

    Raises:
        LakeMismatch: the merged file is missing, and the small ones may hold the only copy.
    """
    if not object_store.exists(f"{_merged(table)}/{merge.name}") and not object_store.exists(
        f"{table.folder}/{merge.into}"
    ):
        raise LakeMismatch(
            f"{_merged(table)}/{merge.name} is gone, which was to replace {len(merge.files)} files: remove "
            f"{_intents(table)}/{merge.name}.json if these still exist, or else restore it from a backup"
        )
    for name in merge.files:
        object_store.remove(f"{table.folder}/{name}")
    folders.sync(f"{table.folder}/{merge.into.partition('/')[0]}")  # or a power failure could bring them back
    merged = f"{_merged(table)}/{merge.name}"
    if object_store.exists(merged):
        folders.move(merged, f"{table.folder}/{merge.into}")
    object_store.remove(f"{_intents(table)}/{merge.name}.json")
