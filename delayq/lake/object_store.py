"""Files of a lake, on this machine or in a store of objects: each there as a whole, or not at all.

A path is a folder of this machine, or a URI that pyarrow knows, such as ``s3://bucket/folder`` or ``hdfs://…``. What
stands behind its host is taken as it is, as Spark takes it: ``%20`` is not a blank.
"""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from delayq.errors import InvalidInput, LakeMismatch

T = TypeVar("T")

LEVEL = 3  # of zstd: a higher one writes at half the speed, and saves a tenth
OBJECTS = {"s3", "gcs", "abfs"}  # stores in which an object appears when it is complete

_URI = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_ARROWS = {"s3a": "s3"}  # schemes that Java has another name for


class Uri(NamedTuple):
    """The parts of a URI: ``SCHEME://HOST/PATH``; the path begins with a slash, or is empty."""

    scheme: str
    host: str
    path: str


def uri(path: str) -> Uri | None:
    """Return the parts of a path that is a URI; None when it is one of this machine."""
    match = _URI.fullmatch(path)
    return None if match is None else Uri(match[1].lower(), match[2], match[3])


def place(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path, and the path in it.

    Raises:
        InvalidInput: no file system of pyarrow's has such paths.
    """
    parts = uri(path)
    if parts is None:
        return fs.LocalFileSystem(), path
    inner, mark, query = parts.path.partition("?")
    try:
        root = f"{_ARROWS.get(parts.scheme, parts.scheme)}://{parts.host}/{mark}{query}"
        system, start = fs.FileSystem.from_uri(root)  # without the path, in which it would replace what looks escaped
    except (pa.ArrowException, ValueError, OSError) as error:
        raise InvalidInput(f"the path {path!r} leads nowhere: {error}") from error
    return system, start.rstrip("/") + inner


def whole(path: str) -> str:
    """Return a folder's path that means the same in every process of this machine, whatever its folder is.

    Raises:
        InvalidInput: it has a query, behind which nothing can be added to it.
    """
    parts = uri(path)
    if parts is None:
        return os.path.abspath(path)  # noqa: PTH100  # as Java does it, without a look at links
    if "?" in parts.path:
        raise InvalidInput(f"the folder {path!r} has a query: say it in the environment, as by AWS_REGION and the like")
    return f"{parts.scheme}://{parts.host}{parts.path.rstrip('/')}"


def write_once(path: str, data: bytes | pa.Buffer) -> None:
    """Write a file whose name says what it holds, as `write_bytes` does.

    Where none can be replaced in one step, one that is there wholly is left. Elsewhere it is written anew: it may have
    been damaged since, or stand in a folder that the disk does not know of yet.
    """
    system, inner = place(path)
    if _replaces(system) or system.get_file_info(inner).size != len(data):
        write_bytes(path, data)


def write_bytes(path: str, data: bytes | pa.Buffer) -> None:
    """Write a file; once this has returned, it outlives a loss of power.

    What is there is replaced in one step, but for HDFS, where it is first removed: a kill in between leaves neither.
    """
    system, inner = place(path)
    if isinstance(system, fs.LocalFileSystem):
        _write_here(Path(inner), data)
        return
    folder, _, name = inner.rpartition("/")
    system.create_dir(folder, recursive=True)
    renames = not _replaces(system)
    hidden = f"{folder}/.{name}.{uuid.uuid4().hex}" if renames else inner
    with system.open_output_stream(hidden) as stream:
        stream.write(data)
    if renames:
        system.move(hidden, inner)


def _replaces(system: fs.FileSystem) -> bool:
    return isinstance(system, fs.LocalFileSystem) or system.type_name in OBJECTS


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
        raise LakeMismatch(f"{path} is no {_kind(form)}: {error}; another program has changed it") from error


def _kind(form: type) -> str:
    """Return the last word of a type's name: a `DeferRun` is a run."""
    return re.sub(r".*(?=[A-Z])", "", form.__name__).lower()


def names(folder: str) -> list[str]:
    """Return the names of what is right in a folder, in any order; none when there is no such folder."""
    system, inner = place(folder)
    if isinstance(system, fs.LocalFileSystem):
        try:
            # pyarrow looks at each one, and leaves out what was removed meanwhile.
            return os.listdir(inner)  # noqa: PTH208  # no more than names
        except FileNotFoundError:
            return []
    return [info.base_name for info in system.get_file_info(fs.FileSelector(inner, allow_not_found=True))]


def remove(path: str) -> None:
    """Remove a file, which may be gone already."""
    system, inner = place(path)
    try:
        system.delete_file(inner)
    except FileNotFoundError:
        return
