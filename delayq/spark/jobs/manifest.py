"""A drained queue on disk: its messages and schedules in Parquet, and a manifest with their checksum.

- ``messages/*.parquet``: one row per message;
- ``schedules.parquet``: one row per schedule, if there are any;
- ``manifest.json``: written last; a folder without it is an unfinished drain.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual name

from delayq.errors import InvalidInput, LakeMismatch
from delayq.lake import object_store
from delayq.lake.object_store import place, whole, write_json, write_table
from delayq.lake.shown_path import shown
from delayq.model.backup import KeptSchedule
from delayq.model.configuration import Configuration
from delayq.spark.archiving import folders

FORMAT = 1
"""The version of the folder; newer ones are refused."""

_MANIFEST = "manifest.json"
_BEGUN = "_draining"
_MESSAGES = "messages"
_SCHEDULES = "schedules.parquet"
_COLUMNS = pa.schema([("name", pa.string()), ("record", pa.binary()), ("slot_ms", pa.int64())])


class MessageChecksum(NamedTuple):
    """A checksum over a set of messages, independent of their order.

    Attributes:
        rows: messages in each state; empty states are left out.
        checksum: the sum, in hexadecimal, of the first 64 bits of the SHA-256 of each message: its id, a zero byte, its
            time in decimal milliseconds, a zero byte, and its envelope without the stamp. The time is the due time, the
            end of the lease if it is handed out, or the time of death.
    """

    rows: dict[str, int]
    checksum: str

    @property
    def total(self) -> int:
        """The number of messages."""
        return sum(self.rows.values())


class DrainManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a drained queue.

    Attributes:
        version: of the folder.
        live: whether the queue was in use, so that this is not the state at one instant.
        server: the version of Redis, or None if unknown.
        rows, checksum: of the messages; see `MessageChecksum`.
        stats: the counts of the queue, with the names in `QueueStats`.
    """

    version: int = FORMAT
    queue: str
    drained_at: dt.datetime
    live: bool
    server: str | None
    shards: int
    rows: dict[str, int]
    checksum: str
    schedules: int
    configuration: Configuration
    stats: dict[str, int]

    @property
    def measure(self) -> MessageChecksum:
        """The checksum of its messages."""
        return MessageChecksum(self.rows, self.checksum)


def measure(messages: DataFrame) -> MessageChecksum:
    """Compute the checksum of messages: one row per message, with id, state, times and envelope."""
    at = "CASE state WHEN 'unack' THEN lease_until ELSE coalesce(due_at, died_at) END"
    ms = f"coalesce(cast(unix_millis({at}) AS string), '')"
    content = F.expr(f"concat(cast(id AS binary), X'00', cast({ms} AS binary), X'00', coalesce(envelope, X''))")
    bits = F.conv(F.substring(F.sha2(content, 256), 1, 16), 16, 10).cast("decimal(20,0)")
    rows = messages.groupBy("state").agg(F.count("*"), F.sum(bits)).collect()
    return MessageChecksum({row[0]: row[1] for row in rows}, f"{sum(int(row[2]) for row in rows):x}")


def messages_of(path: str) -> str:
    """Return the folder with the messages of a drained queue."""
    return f"{whole(path)}/{_MESSAGES}"


def begin(path: str) -> None:
    """Note that a queue is being drained into a folder, whose `messages` may be overwritten from then on.

    Raises:
        InvalidInput: there are `messages` that do not belong to a drained queue.
    """
    if folders.files(messages_of(path)) and not object_store.exists(f"{whole(path)}/{_BEGUN}"):
        raise InvalidInput(f"{messages_of(path)} holds files of something else: choose another folder")
    write_json(f"{whole(path)}/{_BEGUN}", {})


def settle_messages(path: str) -> None:
    """Flush to disk what Spark has written; otherwise the system may take half a minute."""
    for name in folders.files(messages_of(path)):
        folders.settle(f"{messages_of(path)}/{name}")
    folders.sync(messages_of(path))
    folders.sync(whole(path))


def is_written(path: str) -> bool:
    """Whether a folder holds a complete drained queue."""
    system, inner = place(_manifest_of(path))
    return bool(system.get_file_info(inner).type == fs.FileType.File)


def write(path: str, manifest: DrainManifest) -> None:
    """Write the manifest, which completes the drained queue."""
    write_json(_manifest_of(path), manifest)
    object_store.remove(f"{whole(path)}/{_BEGUN}")


def read(path: str) -> DrainManifest:
    """Return the manifest of a drained queue.

    Raises:
        InvalidInput: there is none, or a newer delayq wrote it.
        LakeMismatch: it cannot be read.
    """
    if not is_written(path):
        raise InvalidInput(
            f"{shown(path)!r} holds no drained queue: {_MANIFEST}, which a drain writes at its end, is missing"
        )
    system, inner = place(_manifest_of(path))
    with system.open_input_stream(inner) as stream:
        text = stream.readall()
    try:
        version = msgspec.json.decode(text)["version"]
        if version > FORMAT:
            raise InvalidInput(
                f"{shown(path)!r} has version {version}, but this delayq reads up to {FORMAT}: use a newer one"
            )
        return msgspec.json.decode(text, type=DrainManifest)
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise LakeMismatch(f"{_manifest_of(path)} is not a manifest of a drained queue: {error}") from error


def write_schedules(path: str, kept: Sequence[KeptSchedule]) -> None:
    """Write the schedules of a queue; no file if there are none."""
    if kept:
        columns = [list(column) for column in zip(*kept, strict=True)]
        write_table(_schedules_of(path), pa.table(columns, schema=_COLUMNS))


def read_schedules(path: str, manifest: DrainManifest) -> list[KeptSchedule]:
    """Return the schedules of a drained queue.

    Raises:
        LakeMismatch: there are more or fewer than the manifest says.
    """
    found: list[KeptSchedule] = []
    if manifest.schedules:
        system, inner = place(_schedules_of(path))
        try:
            found = [KeptSchedule(**row) for row in pq.read_table(inner, filesystem=system).to_pylist()]
        except (OSError, pa.ArrowException, TypeError) as error:
            raise LakeMismatch(f"{_schedules_of(path)} cannot be read: {error}") from error
    if len(found) != manifest.schedules:
        raise LakeMismatch(f"{shown(path)!r} has {len(found)} schedules, but its manifest says {manifest.schedules}")
    return found


def _manifest_of(path: str) -> str:
    return f"{path.rstrip('/')}/{_MANIFEST}"


def _schedules_of(path: str) -> str:
    return f"{path.rstrip('/')}/{_SCHEDULES}"
