"""The names and contents of the files in a lake."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import re
from typing import Literal, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from delayq.errors import InvalidInput
from delayq.model.envelope import Envelope, encode, parse_unstamped

HOUR_MS = 3_600_000
MANIFEST = "_manifest"
CHANGES = "_changes"
"""A folder within an hour's, with a file for each message that was cancelled or moved."""

QUEUE, HOUR = "queue=", "hour="
HELD = 9_000_000_000_000_000
"""Higher values of a mark mean that a change holds it; lower ones are when a load's reservation ends, ms."""

_HOUR_FORMAT = "%Y-%m-%dT%H"
_LONGEST = 240  # bytes of a folder's name that all file systems accept
_HINT = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)-[0-9A-Za-z]{14}")
_HOUR_FOLDER = re.compile(HOUR + r"\d{4}-\d\d-\d\dT([01]\d|2[0-3])", re.ASCII)
_RUN = re.compile(r"[\w-][\w.-]{0,63}", re.ASCII)


class DeferredRow(NamedTuple):
    """A message as it is stored.

    Attributes:
        created_ms: when it was sent; its expiry counts from then.
        envelope: as `encode_envelope` made it.
        origin: the change that moved it here, as ``HOUR/MARK``, or None; the row counts only once that is written.
    """

    id: str
    due_ms: int
    created_ms: int
    envelope: bytes
    origin: str | None = None

    @property
    def origin_mark(self) -> str:
        """The mark of the row that it was moved from; "" if it was not moved."""
        return (self.origin or "").partition("/")[2]


class DeferredMessage(NamedTuple):
    """A row and its place.

    Attributes:
        source: of its file: see `File`.
    """

    hour: str
    source: str
    row: DeferredRow

    @property
    def mark(self) -> str:
        """The name of its key in Redis, and of its change in the lake."""
        return mark(self.hour, self.source, self.row.id)


class File(NamedTuple):
    """A file of messages, by its name.

    Attributes:
        writer: a run and a number, such as ``RUN-0``, or a random name.
        rows: the number of messages.
        checksum: of its bytes.
    """

    writer: str
    rows: int
    checksum: str

    @property
    def name(self) -> str:
        """The file's name in its hour's folder."""
        return f"{self.writer}.{self.rows}.{self.checksum}.parquet"

    @property
    def source(self) -> str:
        """The run or the random name: a run that is repeated may divide its rows differently."""
        return self.writer.rpartition("-")[0] or self.writer

    @classmethod
    def read(cls, name: str) -> File | None:
        """Parse a name; None if it is not that of a file of messages."""
        writer, *rest = name.rsplit(".", 3)
        if len(rest) != 3 or rest[2] != "parquet" or not rest[0].isdecimal():
            return None
        return cls(writer, int(rest[0]), rest[1])


class MessageChange(msgspec.Struct, frozen=True):
    """What became of a message before it was loaded.

    Attributes:
        to: the source of the file that holds it now; "" if Redis holds it, None if it was cancelled.
    """

    id: str
    source: str
    to: str | None = None


class Loading(msgspec.Struct, frozen=True):
    """A file whose load has begun.

    Attributes:
        reserved_until_ms: until then, its messages are not sent again.
    """

    file: str
    reserved_until_ms: int


class Loaded(Loading, frozen=True):
    """A file that was loaded, with the results; `rows` is the sum of the other counts.

    Attributes:
        sent: new in Redis.
        existing: already sent by an earlier try, or another message has the same id.
        cancelled: cancelled or moved before the load.
        void: left over from an interrupted reschedule: the message is still where it was.
        held: being changed at the moment, so the file must be loaded again. 0 in a manifest.
        trouble: why it cannot be loaded; "" in a manifest.
        pruned: the file was removed since.
    """

    rows: int
    checksum: str
    sent: int = 0
    existing: int = 0
    cancelled: int = 0
    void: int = 0
    held: int = 0
    trouble: str = ""
    pruned: bool = False


class Manifest(msgspec.Struct, frozen=True):
    """What was loaded of an hour.

    Attributes:
        state: "loading" while a load runs, or after it broke off.
        replaced: files whose load had begun when a repeated run replaced them, each with the time until when Redis
            knows what it was sent of it. A file is left out if another one of its run says the same.
    """

    queue: str
    hour: str
    state: Literal["loading", "loaded"] = "loading"
    loading: list[Loading] = []
    loaded: list[Loaded] = []
    replaced: list[Loading] = []


class DeferRun(msgspec.Struct, frozen=True):
    """What a `defer` has written.

    Attributes:
        created_ms: when it first began; a rerun writes the same.
        files: as ``HOUR/NAME``, of the last try that was complete; empty before that, or if there are no rows.
        repeated: rows left out because an earlier one has the same id.
        rejected: rows that cannot be sent.
    """

    run: str
    created_ms: int
    state: Literal["writing", "written"] = "writing"
    files: list[str] = []
    repeated: int = 0
    rejected: int = 0


def folder_name(queue: str) -> str:
    """Return the name of a queue's folder.

    Raises:
        InvalidInput: its name is too long for a file system.
    """
    name = QUEUE + quote(queue, safe="")
    if len(name) > _LONGEST:
        raise InvalidInput(f"queue {queue!r} is too long for a lake: its folder {name!r} exceeds {_LONGEST} bytes")
    return name


def queue_of(folder: str) -> str:
    """Return the queue that a folder belongs to."""
    return unquote(folder.removeprefix(QUEUE))


def hour_of(ms: int) -> str:
    """Return the hour, UTC, of a moment."""
    return dt.datetime.fromtimestamp(ms // HOUR_MS * 3600, dt.UTC).strftime(_HOUR_FORMAT)


def is_hour(folder: str) -> bool:
    """Whether a folder can be an hour's."""
    return _HOUR_FOLDER.fullmatch(folder) is not None


def start_ms(hour: str) -> int:
    """Return when an hour begins, ms."""
    return round(dt.datetime.strptime(hour, _HOUR_FORMAT).replace(tzinfo=dt.UTC).timestamp()) * 1000


def mark(hour: str, source: str, message_id: str) -> str:
    """Return the name of a row: 16 letters and digits."""
    digest = hashlib.blake2b(f"{hour}/{source}/{message_id}".encode(), digest_size=10).digest()
    return base64.b32encode(digest).decode().lower()


def is_held(value: int | None) -> bool:
    """Whether a mark's value, or None, says that a change holds it."""
    return value is not None and value >= HELD


def checksum(data: bytes | memoryview) -> str:
    """Return the checksum of a file's bytes."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def id_with_hour(hour: str, fresh: str) -> str:
    """Return an id, for a message sent without one, that contains the hour to search first."""
    return f"{hour.replace('-', '').replace('T', '')}-{fresh}"


def hour_in_id(message_id: str) -> str | None:
    """Return the hour in an id, or None."""
    match = _HINT.fullmatch(message_id)
    return f"{match[1]}-{match[2]}-{match[3]}T{match[4]}" if match else None


def check_run(run: str) -> str:
    """Return the name of a run; raise InvalidInput if no file can have it."""
    if not _RUN.fullmatch(run):
        raise InvalidInput(f"the run {run!r} is not a name of 1 to 64 letters, digits, dashes, dots and underscores")
    return run


def envelope_at(row: DeferredRow, now_ms: int) -> bytes:
    """Return the envelope to send now, with the expiry shortened by the time since the message was sent."""
    envelope = parse_unstamped(row.envelope)
    if envelope.expires_ms is None:
        return row.envelope
    left = max(1, row.created_ms + envelope.expires_ms - now_ms)
    return encode(msgspec.structs.replace(envelope, expires_ms=left))


def envelope_of(row: DeferredRow) -> Envelope:
    """Return the envelope of a row."""
    return parse_unstamped(row.envelope)
