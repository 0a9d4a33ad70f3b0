"""A queue's folder in a lake."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake.layout import DeferredMessage, DeferredRow, DeferRun, File, Manifest, MessageChange
from delayq.lake.object_store import (
    LEVEL,
    exists,
    names,
    parquet,
    place,
    read_bytes,
    read_json,
    remove,
    whole,
    write_json,
    write_once,
)
from delayq.lake.shown_path import shown
from delayq.lake.versioned_json import VersionedJson, name_of, read_all

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("due_ms", pa.int64()),
        ("created_ms", pa.int64()),
        ("envelope", pa.binary()),
        ("origin", pa.string()),
    ]
)
GROUP_ROWS = 20_000  # a search for an id reads one such group per file


DAMAGED = "_damaged"
REMEDY = "restore it from a backup, or move it aside with delayq lake repair"
"""What to do about a damaged file."""


class DamagedFile(NamedTuple):
    """A file that cannot be read, and its hour."""

    hour: str
    file: File


@dataclass
class Hour:
    """What is in an hour's folder.

    Attributes:
        changes: the marks of the messages that were cancelled or moved; None if they were not read.
    """

    name: str
    files: dict[str, File] = field(default_factory=dict)
    changes: set[str] | None = None
    has_manifest: bool = False

    def note(self, name: str) -> None:
        """Note a file of the folder."""
        file = File.read(name)
        if file is not None:
            self.files[name] = file
        elif name_of(name) == layout.MANIFEST:
            self.has_manifest = True


class QueueFolder:
    """The messages of a queue that wait in a lake.

    Args:
        lake: a folder, or a URI that pyarrow knows.

    Raises:
        InvalidInput: the place cannot be used.
    """

    def __init__(self, lake: str | os.PathLike[str], queue: str) -> None:
        lake = os.fspath(lake)
        self.queue = queue
        self.path = f"{whole(lake)}/{layout.folder_name(queue)}"
        place(self.path)

    def hours(self, *names: str) -> list[Hour]:
        """Return the hours that have a folder, earliest first: all, or the named ones, without their changes."""
        found: dict[str, Hour] = {}
        changes: dict[str, set[str]] = {}
        for path in self._listed(*names):
            *_, above, parent, name = ["", *path.split("/")]
            if layout.is_hour(parent):
                hour = parent.removeprefix(layout.HOUR)
                found.setdefault(hour, Hour(hour)).note(name)
            elif parent == layout.CHANGES:
                changes.setdefault(above.removeprefix(layout.HOUR), set()).update(_marks(name))
        for hour in () if names else found:
            found[hour].changes = changes.get(hour, set())
        return sorted(found.values(), key=lambda each: each.name)

    def _listed(self, *hours: str) -> Iterator[str]:
        """Yield the paths of all files, or of those directly in the folders of hours."""
        for folder in map(self.hour_folder, hours) if hours else [self.path]:
            system, inner = place(folder)
            selector = fs.FileSelector(inner, allow_not_found=True, recursive=not hours)
            yield from (info.path for info in system.get_file_info(selector) if info.is_file)

    def hour_folder(self, hour: str) -> str:
        """Return the folder of an hour."""
        return f"{self.path}/{layout.HOUR}{hour}"

    def write(self, hour: str, writer: str, rows: pa.Table | Sequence[DeferredRow]) -> File:
        """Write messages of an hour as a file, sorted by id; once this returns, they survive a power failure."""
        if not isinstance(rows, pa.Table):
            columns = zip(*sorted(rows), strict=True)
            rows = pa.table([list(column) for column in columns], schema=SCHEMA)
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, compression="zstd", compression_level=LEVEL, row_group_size=GROUP_ROWS)
        data = sink.getvalue()
        file = File(writer, rows.num_rows, layout.checksum(memoryview(data)))
        write_once(f"{self.hour_folder(hour)}/{file.name}", data)
        return file

    def read(self, hour: str, file: File) -> pa.Table:
        """Return the messages of a file.

        Raises:
            LakeMismatch: it is gone or damaged.
        """
        path = f"{self.hour_folder(hour)}/{file.name}"
        try:
            data = read_bytes(path)
        except FileNotFoundError as error:
            raise LakeMismatch(f"{shown(path)} is gone: restore it from a backup") from error
        if layout.checksum(data) != file.checksum:
            raise LakeMismatch(f"{shown(path)} does not match its checksum: {REMEDY}")
        with parquet(path, REMEDY):
            table = pq.read_table(pa.BufferReader(data))
        if table.num_rows != file.rows:
            raise LakeMismatch(f"{shown(path)} holds {table.num_rows} messages, not {file.rows}: {REMEDY}")
        return table

    def set_aside(self) -> list[DamagedFile]:
        """Move damaged files to the folder ``_damaged``, where nothing looks for messages; return them.

        All files are read in full.
        """
        found = [DamagedFile(hour.name, file) for hour in self.hours() for file in hour.files.values()]
        return [each for each in found if self._move_if_damaged(each)]

    def _move_if_damaged(self, damaged: DamagedFile) -> bool:
        path = f"{self.hour_folder(damaged.hour)}/{damaged.file.name}"
        try:
            self.read(damaged.hour, damaged.file)
        except LakeMismatch:
            if not exists(path):  # it was loaded and removed meanwhile, or lost
                return False
        else:
            return False
        system, inner = place(f"{self.path}/{DAMAGED}/{damaged.hour}/{damaged.file.name}")
        system.create_dir(inner.rpartition("/")[0], recursive=True)
        system.move(place(path)[1], inner)
        return True

    def remove(self, hour: str, file: File) -> None:
        """Remove a file, if it still exists."""
        remove(f"{self.hour_folder(hour)}/{file.name}")

    def manifest(self, hour: str) -> Manifest | None:
        """Return the manifest of an hour, or None; raise LakeMismatch if it is unreadable."""
        return self._manifest(hour).read()

    def put_manifest(self, manifest: Manifest) -> None:
        """Write the manifest of an hour; replace an existing one."""
        self._manifest(manifest.hour).write(manifest)

    def _manifest(self, hour: str) -> VersionedJson[Manifest]:
        return VersionedJson(self.hour_folder(hour), layout.MANIFEST, Manifest)

    def change(self, hour: str, mark: str) -> MessageChange | None:
        """Return what became of a message, or None."""
        return read_json(self._change(hour, mark), MessageChange)

    def changes(self, hour: str) -> set[str]:
        """Return the marks of the messages of an hour that were cancelled or moved."""
        return {mark for name in names(f"{self.hour_folder(hour)}/{layout.CHANGES}") for mark in _marks(name)}

    def withdraw(self, deferred: DeferredMessage, to: str | None = None) -> None:
        """Write that a message has left its file; `to` is that of `MessageChange`."""
        write_json(self._change(deferred.hour, deferred.mark), MessageChange(deferred.row.id, deferred.source, to))

    def _change(self, hour: str, mark: str) -> str:
        return f"{self.hour_folder(hour)}/{layout.CHANGES}/{mark}.json"

    def run(self, name: str) -> DeferRun | None:
        """Return what a run has written, or None."""
        return self._run(name).read()

    def put_run(self, run: DeferRun) -> None:
        """Note what a run has written."""
        self._run(run.run).write(run)

    def _run(self, name: str) -> VersionedJson[DeferRun]:
        return VersionedJson(f"{self.path}/_runs", name, DeferRun)

    def was_replaced(self, hour: str, name: str) -> bool:
        """Whether a file of messages is gone because its run was repeated and wrote others in its place."""
        file = File.read(name)
        if file is None or exists(f"{self.hour_folder(hour)}/{name}"):
            return False
        run = self.run(file.source)  # read last: the run is noted before a file is removed
        return run is not None and (run.files != [] or run.state == "written") and f"{hour}/{name}" not in run.files

    def runs(self) -> list[DeferRun]:
        """Return what all runs have written."""
        return read_all(f"{self.path}/_runs", DeferRun)

    def find(self, message_id: str) -> DeferredMessage | None:
        """Find a message that waits here and was not loaded; None if there is none."""
        hour = layout.hour_in_id(message_id)
        found = self.find_all([message_id], hour) if hour else {}
        return (found or self.find_all([message_id])).get(message_id)

    def find_all(self, ids: Collection[str], *hours: str) -> dict[str, DeferredMessage]:
        """Find messages by their ids; if several have one id, the earliest.

        Raises:
            LakeMismatch: a file is damaged, and one of the ids is in none of the others.
        """
        found: dict[str, DeferredMessage] = {}
        damaged: list[LakeMismatch] = []
        for hour in self.hours(*hours):
            for deferred in self._matches(hour, pa.array(sorted(ids), pa.string()), damaged):
                if not self._is_changed(hour, deferred.mark) and self.is_there(deferred):
                    found.setdefault(deferred.row.id, deferred)
        if damaged and not found.keys() >= set(ids):
            raise damaged[0]
        return found

    def _is_changed(self, hour: Hour, mark: str) -> bool:
        return self.change(hour.name, mark) is not None if hour.changes is None else mark in hour.changes

    def _matches(self, hour: Hour, ids: pa.Array, damaged: list[LakeMismatch]) -> Iterator[DeferredMessage]:
        """Yield the rows with these ids; `damaged` gets an error for each file that cannot be read."""
        manifest = self.manifest(hour.name) if hour.has_manifest and hour.files else None
        loaded = {each.file for each in manifest.loaded} if manifest else set()
        for name, file in hour.files.items():
            if name not in loaded:
                try:
                    rows = list(self._rows(f"{self.hour_folder(hour.name)}/{name}", ids))
                except LakeMismatch as error:
                    damaged.append(error)
                    continue
                yield from (DeferredMessage(hour.name, file.source, row) for row in rows)

    @staticmethod
    def _rows(path: str, ids: pa.Array) -> Iterable[DeferredRow]:
        system, inner = place(path)
        low, high = ids[0].as_py(), ids[-1].as_py()
        try:
            with system.open_input_file(inner) as file, parquet(path, REMEDY):
                groups = pq.ParquetFile(file)
                for number in range(groups.num_row_groups):
                    span = groups.metadata.row_group(number).column(0).statistics
                    if span is None or not span.has_min_max or (span.min <= high and span.max >= low):
                        yield from _of_ids(groups, number, ids)
        except FileNotFoundError:  # loaded and pruned meanwhile
            return

    def is_there(self, deferred: DeferredMessage) -> bool:
        """Whether a message belongs here: the reschedule that moved it here may have broken off."""
        return deferred.row.origin is None or self._moved_to(deferred.row.origin) == deferred.source

    def _moved_to(self, origin: str) -> str | None:
        change = self.change(*origin.split("/"))
        return None if change is None else change.to


def _marks(name: str) -> Iterator[str]:
    """Yield the mark whose change a file records, if it does."""
    if name.endswith(".json") and not name.startswith("."):
        yield name.removesuffix(".json")


def _of_ids(groups: pq.ParquetFile, number: int, ids: pa.Array) -> Iterator[DeferredRow]:
    if pc.any(pc.is_in(groups.read_row_group(number, columns=["id"])["id"], value_set=ids)).as_py():
        table = groups.read_row_group(number)
        yield from rows_of(table.filter(pc.is_in(table["id"], value_set=ids)))


def rows_of(table: pa.Table | pa.RecordBatch) -> Iterator[DeferredRow]:
    """Yield the rows of a table of messages."""
    yield from map(DeferredRow, *(column.to_pylist() for column in table.columns))


def queues(lake: str) -> list[str]:
    """Return the names of the queues that have a folder in a lake, in order."""
    system, inner = place(lake)
    infos = system.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    folders = (info.base_name for info in infos if info.type == fs.FileType.Directory)
    return sorted(layout.queue_of(folder) for folder in folders if folder.startswith(layout.QUEUE))
