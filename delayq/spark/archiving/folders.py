"""Folders of a lake: list files, move them, and remove folders.

Paths are those of `delayq.lake.object_store`. On a local disk, a change is durable against power failures when the
function returns.
"""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
from pyarrow import fs

from delayq.lake.object_store import place, uri, whole

_JAVAS = {"s3": "s3a", "gcs": "gs"}  # schemes with different names in pyarrow and Java


def files(folder: str) -> dict[str, int]:
    """Return the files in a folder and below: their relative paths, sorted, and their sizes in bytes.

    Names that begin with ``.`` or ``_``, which Spark and pyarrow ignore, are left out. A missing folder has no files.
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
    """Return the names of files and folders directly in a folder, sorted, without files still being written."""
    system, inner = place(folder)
    found = [info.base_name for info in system.get_file_info(fs.FileSelector(inner, allow_not_found=True))]
    return sorted(name for name in found if not name.startswith("."))


def rows(path: str) -> int:
    """Return how many rows a Parquet file has."""
    system, inner = place(path)
    return int(pq.read_metadata(inner, filesystem=system).num_rows)


def for_spark(path: str) -> str:
    """Convert a path for pyarrow into one for Spark.

    A path without a scheme would be in Java's default file system, which may be a cluster's, or in the folder in which
    it was started. The keys of an object store are left out, as Java has them in its settings and shows paths.
    """
    parts = uri(path)
    if parts is None:
        return f"file://{whole(path)}"
    scheme = _JAVAS.get(parts.scheme, parts.scheme)
    host = parts.host.rpartition("@")[2] if scheme in _JAVAS.values() else parts.host
    return f"{scheme}://{host}{parts.path}"


def settle(path: str) -> None:
    """Flush to disk what another program has written to a file."""
    system, inner = place(path)
    if isinstance(system, fs.LocalFileSystem):
        with Path(inner).open("rb") as file:
            os.fsync(file)


def move(source: str, target: str) -> None:
    """Move a file and replace the target, atomically except in an object store, which copies it."""
    system, inner = place(target)
    system.create_dir(inner.rpartition("/")[0], recursive=True)
    system.move(place(source)[1], inner)
    sync(target.rpartition("/")[0])


def remove_folder(path: str) -> None:
    """Remove a folder and everything in it, if it exists."""
    system, inner = place(path)
    try:
        system.delete_dir(inner)
    except FileNotFoundError:
        return


def sync(folder: str) -> None:
    """Flush a folder's list of files to disk."""
    system, inner = place(folder)
    if not isinstance(system, fs.LocalFileSystem):
        return
    opened = os.open(inner, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
