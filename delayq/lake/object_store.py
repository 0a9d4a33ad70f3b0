"""Files of a lake, on this machine or in an object store: each appears as a whole, or not at all.

A path is a folder of this machine, or a URI that pyarrow knows, such as ``s3://bucket/folder`` or ``hdfs://…``. The
part after the host is used literally, as Spark does: ``%20`` is not a blank.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from delayq.errors import InvalidInput, LakeMismatch
from delayq.lake.shown_path import shown

T = TypeVar("T")

LEVEL = 3  # of zstd: a higher one halves the speed and saves only a tenth
OBJECTS = {"s3", "gcs", "abfs"}  # stores in which an object appears when it is complete

_URI = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)(.*)", re.IGNORECASE | re.DOTALL)
_ARROWS = {"s3a": "s3"}  # Java's names of schemes, and Arrow's


class Uri(NamedTuple):
    """The parts of a URI: ``SCHEME://HOST/PATH``; the path begins with a slash, or is empty."""

    scheme: str
    host: str
    path: str


def uri(path: str) -> Uri | None:
    """Return the parts of a path that is a URI; None for a path of this machine.

    Raises:
        InvalidInput: it may be neither, such as a connection string, so it is not shown.
    """
    match = _URI.fullmatch(path)
    if match is not None:
        return Uri(match[1].lower(), match[2], match[3])
    if shown(path) != path:
        raise InvalidInput(
            f"the path {shown(path)!r} is not a URI such as s3://bucket/folder; if it is a path of this machine, "
            "write ./ in front of it"
        )
    return None


def place(path: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path, and the path in it.

    Raises:
        InvalidInput: none of pyarrow's file systems has such paths.
    """
    parts = uri(path)
    if parts is None:
        return fs.LocalFileSystem(), path
    inner, mark, query = parts.path.partition("?")
    try:
        root = f"{_ARROWS.get(parts.scheme, parts.scheme)}://{parts.host}/{mark}{query}"
        system, start = fs.FileSystem.from_uri(root)  # without the path, which it would unescape
    except (pa.ArrowException, ValueError, OSError) as error:
        if shown(path) == path:
            raise InvalidInput(f"cannot use the path {shown(path)!r}: {error}") from error
    else:
        return system, start.rstrip("/") + inner
    # The text of pyarrow's error may have the secret, and so may a traceback with that error.
    raise InvalidInput(f"cannot use the path {shown(path)!r}: check its login and its options")


def whole(path: str) -> str:
    """Return a folder's path that means the same in every process of this machine, in any working directory.

    Raises:
        InvalidInput: it has a query, after which no names can be added.
    """
    parts = uri(path)
    if parts is None:
        return os.path.abspath(path)  # noqa: PTH100  # as Java does, without resolving links
    if "?" in parts.path:
        raise InvalidInput(
            f"the folder {shown(path)!r} has a query: set its options in the environment, such as AWS_REGION"
        )
    return f"{parts.scheme}://{parts.host}{parts.path.rstrip('/')}"


def write_once(path: str, data: bytes | pa.Buffer) -> None:
    """Write a file whose name contains its checksum, as `write_bytes` does.

    If the file system cannot replace a file in one step, a complete existing one is kept. Otherwise it is written
    again: it may be damaged, or its folder may not be on the disk yet.
    """
    system, inner = place(path)
    if _replaces(system) or system.get_file_info(inner).size != len(data):
        write_bytes(path, data)


def write_bytes(path: str, data: bytes | pa.Buffer) -> None:
    """Write a file; once this returns, the file survives a power failure.

    An existing file is replaced in one step, except on HDFS, where it is removed first: a kill in between leaves none.
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
        _sync(folder)  # else a power failure may lose the name, and so the file


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def write_table(path: str, table: pa.Table) -> None:
    """Write a table as a Parquet file; replace an existing one."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd", compression_level=LEVEL)
    write_bytes(path, sink.getvalue())


@contextmanager
def parquet(path: str, remedy: str = "restore it from a backup") -> Iterator[None]:
    """Raise the errors with which pyarrow refuses the contents of Parquet files as LakeMismatch.

    Args:
        path: of the file, or of the folder with the files.
        remedy: what to do about a damaged one.

    Raises:
        LakeMismatch
        OSError: errors of the file system or object store, and a missing file, are raised unchanged.
    """
    try:
        yield
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, OSError) and (error.errno is not None or not _is_readable(path)):
            raise
        said = str(error).partition("\n")[0].rstrip(".")
        raise LakeMismatch(f"{shown(path)} is damaged, or not a Parquet file of delayq ({said}): {remedy}") from error


def _is_readable(path: str) -> bool:
    """Whether a file can be read, or it is a folder; the errors of object stores have no number."""
    system, inner = place(path)
    try:
        if system.get_file_info(inner).is_file:
            with system.open_input_stream(inner) as file:
                file.read(1)
    except OSError:
        return False
    return True


def write_json(path: str, value: Any) -> None:
    """Write a JSON document; replace an existing one."""
    write_bytes(path, msgspec.json.encode(value) + b"\n")


def read_bytes(path: str) -> bytes:
    """Return the contents of a file.

    Raises:
        FileNotFoundError
    """
    system, inner = place(path)
    with system.open_input_file(inner) as file:
        return bytes(file.read())


def read_json(path: str, form: type[T]) -> T | None:
    """Return the value of a JSON document; None if there is no such file.

    Raises:
        LakeMismatch: it does not have this form.
    """
    try:
        return msgspec.json.decode(read_bytes(path), type=form)
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise LakeMismatch(
            f"{shown(path)} is not a valid {_kind(form)}: {error}; another program has changed it"
        ) from error


def _kind(form: type) -> str:
    """Return the last word of a type's name: a `DeferRun` is a run."""
    return re.sub(r".*(?=[A-Z])", "", form.__name__).lower()


def names(folder: str) -> list[str]:
    """Return the names directly in a folder, in any order; none if there is no such folder."""
    system, inner = place(folder)
    if isinstance(system, fs.LocalFileSystem):
        try:
            # pyarrow would look at each file, and leave out those that were removed meanwhile.
            return os.listdir(inner)  # noqa: PTH208  # only names are needed
        except FileNotFoundError:
            return []
    return [info.base_name for info in system.get_file_info(fs.FileSelector(inner, allow_not_found=True))]


def exists(path: str) -> bool:
    """Whether there is such a file or folder."""
    system, inner = place(path)
    return bool(system.get_file_info(inner).type != fs.FileType.NotFound)


def remove(path: str) -> None:
    """Remove a file, if it still exists."""
    system, inner = place(path)
    try:
        system.delete_file(inner)
    except FileNotFoundError:
        return
