"""Compaction: the small files of a day become one.

No file system changes several files at once, so a reader could see the rows of a merge twice, or not at all, for an
instant. It is the latter: the small files go first, and the large one, which is complete by then, is moved in. That
takes as long as it takes to remove them, a millisecond for some dozens on a disk. A reader that has listed the folder
before fails, since files are gone that it was to read. Days that are still written to are therefore left alone unless
that is asked for.

What is to happen is written down before it begins. When it is killed, it is brought to its end by whatever of delayq's
looks at the archive next; until then, rows may be missing there, and none is there twice.
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
from delayq.lake.object_store import LEVEL, place, write_bytes, write_json
from delayq.spark.archiving import folders
from delayq.spark.archiving.append_table import AppendTable, batch_of
from delayq.spark.archiving.locks import exclusive_lock

TARGET_BYTES = 64 * 1024 * 1024
"""A file of this size is large enough: a million entries, which Spark reads in a second."""


class Compacted(NamedTuple):
    """What became of small files.

    Attributes:
        files: that were merged.
        into: as many files.
        rows: that are in them.
    """

    files: int = 0
    into: int = 0
    rows: int = 0


class Merge(msgspec.Struct, frozen=True):
    """Files of a day that become one.

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
        target: bytes at which a file is no small one.

    Raises:
        LakeMismatch: another process compacts the table.
    """
    day = (before or dt.datetime.now(dt.UTC).date()).isoformat()
    done = Compacted()
    with _alone(table):
        _finish_all(table)
        folders.remove_folder(_merged(table))  # what was not decided on; only here: a reader may mend at any moment
        for merge in _plan(table, day, target):
            rows = _merge(table, merge)
            done = Compacted(done.files + len(merge.files), done.into + 1, done.rows + rows)
    return done


def recover(table: AppendTable) -> None:
    """Bring what a killed compaction has left to its end; one that runs sees to that itself."""
    if not folders.names(_intents(table)):
        return
    try:
        with _alone(table):
            _finish_all(table)
    except LakeMismatch:
        return


def _alone(table: AppendTable) -> AbstractContextManager[None]:
    return exclusive_lock(f"{table.work}/compacting.lock", f"compacting {table.folder}")


def _intents(table: AppendTable) -> str:
    return f"{table.work}/intents"


def _merged(table: AppendTable) -> str:
    return f"{table.work}/merged"


def _plan(table: AppendTable, day: str, target: int) -> Iterator[Merge]:
    sizes = folders.files(table.folder)
    # The last batch may not be known to Spark as done: it may be done again, and has to be found then.
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
    """Return files as one."""
    system, inner = place(table.folder)
    found = ds.dataset([f"{inner}/{name}" for name in files], table.schema, "parquet", system)
    sink, rows = pa.BufferOutputStream(), 0
    with pq.ParquetWriter(sink, table.schema, compression="zstd", compression_level=LEVEL) as writer:
        for batch in found.to_batches():
            writer.write_batch(batch)
            rows += batch.num_rows
    return sink.getvalue(), rows


def _finish_all(table: AppendTable) -> None:
    """Bring each merge that was decided on to its end."""
    for name in folders.names(_intents(table)):
        _finish(table, msgspec.json.decode(folders.read(f"{_intents(table)}/{name}"), type=Merge))


def _finish(table: AppendTable, merge: Merge) -> None:
    """Do what is left of a merge: each step may have been done before.

    Raises:
        LakeMismatch: the merged file is nowhere, and the small ones may be all that there is.
    """
    if not folders.exists(f"{_merged(table)}/{merge.name}") and not folders.exists(f"{table.folder}/{merge.into}"):
        raise LakeMismatch(
            f"{_merged(table)}/{merge.name} is gone, which was to take the place of {len(merge.files)} files: remove "
            f"{_intents(table)}/{merge.name}.json if these are there, else restore it from a backup"
        )
    for name in merge.files:
        folders.remove(f"{table.folder}/{name}")
    folders.sync(f"{table.folder}/{merge.into.partition('/')[0]}")  # else a loss of power could bring them back
    merged = f"{_merged(table)}/{merge.name}"
    if folders.exists(merged):
        folders.move(merged, f"{table.folder}/{merge.into}")
    folders.remove(f"{_intents(table)}/{merge.name}.json")
