"""Folders of a lake: which files are in them, and how these move and go.

Paths are those of `delayq.lake.object_store`. On a disk of this machine, what has returned outlives a loss of power.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import fs

from delayq.lake.object_store import place, uri, whole

_JAVAS = {"s3": "s3a", "gcs": "gs"}  # schemes that pyarrow has another name for


def files(folder: str) -> dict[str, int]:
    """Return the files in a folder and below it: their paths from there, in order, and their sizes in bytes.

    Those that Spark and pyarrow pass over, whose names begin with ``.`` or ``_``, are left out. A folder that is not
    there has none.
    """
    system, inner = place(folder)
    found = system.get_file_info(fs.FileSelector(inner, recursive=True, allow_not_found=True))
    start = len(inner.rstrip("/")) + 1
    return {
        info.path[start:]: info.size
        for info in sorted(found, key=lambda info: info.path)
        if info.type == fs.FileType.File and not info.base_name.startswith((".", "_"))
    }


def names(folder: str) -> list[str]:
    """Return what is right in a folder, files and folders, in order; without what is still being written."""
    system, inner = place(folder)
    found = [info.base_name for info in system.get_file_info(fs.FileSelector(inner, allow_not_found=True))]
    return sorted(name for name in found if not name.startswith("."))


def exists(path: str) -> bool:
    """Whether there is a file or a folder of this path."""
    system, inner = place(path)
    return bool(system.get_file_info(inner).type != fs.FileType.NotFound)


def read(path: str) -> bytes:
    """Return what is in a file."""
    system, inner = place(path)
    with system.open_input_file(inner) as file:
        return bytes(file.read())


def rows(path: str) -> int:
    """Return how many rows a file of Parquet has."""
    system, inner = place(path)
    return int(pq.read_metadata(inner, filesystem=system).num_rows)


def for_spark(path: str) -> str:
    """Return a path by which Spark finds what pyarrow finds by it.

    One without a scheme would be in Java's default file system, which may be a cluster's, or in the folder in which it
    was started. The keys of a store of objects are left out: Java has them from its settings, and shows paths.
    """
    parts = uri(path)
    if parts is None:
        return f"file://{whole(path)}"
    scheme = _JAVAS.get(parts.scheme, parts.scheme)
    host = parts.host.rpartition("@")[2] if scheme in _JAVAS.values() else parts.host
    return f"{scheme}://{host}{parts.path}"


def settle(path: str) -> None:
    """Let the disk hold what another program has written to a file."""
    system, inner = place(path)
    if isinstance(system, fs.LocalFileSystem):
        with Path(inner).open("rb") as file:
            os.fsync(file)


def move(source: str, target: str) -> None:
    """Move a file, in place of what is there; at once, but for a store of objects, which copies it."""
    system, inner = place(target)
    system.create_dir(inner.rpartition("/")[0], recursive=True)
    system.move(place(source)[1], inner)
    sync(target.rpartition("/")[0])


def remove(path: str) -> None:
    """Remove a file, if it is there."""
    system, inner = place(path)
    try:
        system.delete_file(inner)
    except FileNotFoundError:
        return


def remove_folder(path: str) -> None:
    """Remove a folder and all that is in it, if it is there."""
    system, inner = place(path)
    try:
        system.delete_dir(inner)
    except FileNotFoundError:
        return


def sync(folder: str) -> None:
    """Let the disk know which files are in a folder."""
    system, inner = place(folder)
    if not isinstance(system, fs.LocalFileSystem):
        return
    opened = os.open(inner, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
