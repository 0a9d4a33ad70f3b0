"""JSON Lines files of messages: one JSON object per line, read line by line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from delayq.errors import InvalidInput
from delayq.model.delivery import OnConflict, Outgoing
from delayq.model.units import parse_duration, parse_moment

from .formats import checked_json
from .output import shortened

MAX_LINE_BYTES = 16 * 1024 * 1024  # a payload of 1 MiB takes up to 6 MiB if every character is escaped
MAX_WHY = 500  # characters of an error, which may quote the line
BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors put it at the start of a file


DURATIONS = ("delay", "expires_in", "unique_for", "timeout", "results")

F = TypeVar("F")
T = TypeVar("T")


class JsonLine(NamedTuple):
    """A line of a file.

    Attributes:
        file: the file's name, for errors.
        number: 1 for the first line.
        end: the offset of the next line, in bytes.
        digest: of all bytes before `end`.
    """

    file: str
    number: int
    end: int
    digest: str
    text: bytes

    def wrong(self, why: object) -> InvalidInput:
        """Return an error that names the line."""
        return InvalidInput(f"{self.file}, line {self.number}: {shortened(str(why), MAX_WHY)}")


class MessageFields(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of a line: the options of `delayq send`."""

    payload: msgspec.Raw
    delay: float | str | None = None
    at: str | None = None
    id: str | None = None
    on_conflict: OnConflict = "ignore"
    expires_in: float | str | None = None
    max_retries: int | None = None
    headers: dict[str, str | int | float | bool | None] | None = None
    unique_for: float | str | None = None
    timeout: float | str | None = None
    results: float | str | None = None
    task: str | None = None


def read_lines(stream: IO[bytes], file: str) -> Iterator[JsonLine]:
    """Yield the lines of a file.

    Raises:
        InvalidInput: a line is longer than MAX_LINE_BYTES.
    """
    hasher = hashlib.blake2b(digest_size=16)
    number = end = 0
    while text := stream.readline(MAX_LINE_BYTES + 1):
        number, end = number + 1, end + len(text)
        hasher.update(text)
        line = JsonLine(file, number, end, hasher.hexdigest(), text)
        if len(text) > MAX_LINE_BYTES:
            raise line.wrong(f"longer than {MAX_LINE_BYTES:,} bytes: is this a file of JSON lines?")
        yield line


_decode = msgspec.json.Decoder(MessageFields).decode


def parse_line(line: JsonLine) -> Outgoing | None:
    """Return the message of a line, None for a blank one; raises InvalidInput that names a malformed line."""
    return parsed(line, _decode, _outgoing)


def parsed(line: JsonLine, decode: Callable[[bytes], F], make: Callable[[F], T]) -> T | None:
    """Return what a line says, None for a blank one.

    Args:
        decode: reads its fields.
        make: makes something of them.

    Raises:
        InvalidInput: the line is malformed, or one of its values is.
    """
    text = line.text.removeprefix(BYTE_ORDER_MARK) if line.number == 1 else line.text
    if not text.strip():
        return None
    try:
        return make(decode(text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidInput) as error:
        raise line.wrong(error) from error


def _outgoing(fields: MessageFields) -> Outgoing:
    if fields.unique_for is not None and fields.id is None:
        raise InvalidInput(f"unique_for {fields.unique_for!r} needs an id to reserve: give one")
    return Outgoing(**arguments(fields))


def arguments(fields: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a line as arguments; raises InvalidInput."""
    given = msgspec.structs.asdict(fields)
    given["payload"] = checked_json(bytes(given["payload"]))
    given["at"] = None if given["at"] is None else parse_moment(given["at"])
    return given | {name: seconds_of(given[name]) for name in DURATIONS if name in given}


def seconds_of(given: float | str | None) -> float | None:
    """Return seconds, from a number or a duration such as 1h30m; None for None."""
    return parse_duration(given) if isinstance(given, str) else given
