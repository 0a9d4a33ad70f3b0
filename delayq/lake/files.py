"""Files of a lake, on this machine or in a store of objects: each there as a whole, or not at all.

A path is a folder of this machine, or a URI that pyarrow knows, such as ``s3://bucket/folder`` or ``hdfs://…``.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from delayq.errors import InvalidInput, LakeMismatch

T = TypeVar("T")

LEVEL = 3  # of zstd: a higher one writes at half the speed, and saves a tenth


def place(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path, and the path in it.

    Raises:
        InvalidInput: no file system of pyarrow's has such paths.
    """
    try:
        system, inner = fs.FileSystem.from_uri(path) if "://" in path else (fs.LocalFileSystem(), path)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise InvalidInput(f"the path {path!r} leads nowhere: {error}") from error
    return system, inner


def whole(path: str) -> str:
    """Return a path that means the same in every process of this machine, whatever its folder is."""
    return path.rstrip("/") if "://" in path else os.path.abspath(path)  # noqa: PTH100  # a URI is no Path


def write_bytes(path: str, data: bytes | pa.Buffer) -> None:
    """Write a file, in place of what is there; once this has returned, it outlives a loss of power."""
    system, inner = place(path)
    if isinstance(system, fs.LocalFileSystem):
        _write_here(Path(inner), data)
        return
    folder, _, name = inner.rpartition("/")
    system.create_dir(folder, recursive=True)
    renames = isinstance(system, fs.HadoopFileSystem)  # elsewhere an object appears when it is complete
    hidden = f"{folder}/.{name}.{uuid.uuid4().hex}" if renames else inner
    with system.open_output_stream(hidden) as stream:
        stream.write(data)
    if renames:
        system.move(hidden, inner)


def _write_here(path: Path, data: bytes | pa.Buffer) -> None:
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with hidden.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(path)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise
    for folder in (path.parent, *(each.parent for each in made)):
        _sync(folder)  # else the name may be lost, and the file with it


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_table(path: str, table: pa.Table) -> None:
    """Write a table as a file of Parquet, in place of what is there."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=LEVEL)
    write_bytes(path, sink.getvalue())


def write_json(path: str, value: Any) -> None:
    """Write a JSON document, in place of what is there."""
    write_bytes(path, msgspec.json.encode(value) + b"\n")


def read_bytes(path: str) -> bytes:
    """Return what a file holds.

    Raises:
        FileNotFoundError
    """
    system, inner = place(path)
    with system.open_input_file(inner) as file:
        return bytes(file.read())


def read_json(path: str, form: type[T]) -> T | None:
    """Return what a JSON document says; None when there is no such file.

    Raises:
        LakeMismatch: it says something else.
    """
    try:
        return msgspec.json.decode(read_bytes(path), type=form)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise LakeMismatch(f"{path} is no {form.__name__.lower()}: {error}; another program has changed it") from error


def remove(path: str) -> None:
    """Remove a file, which may be gone already."""
    system, inner = place(path)
    try:
        system.delete_file(inner)
    except FileNotFoundError:
        return
