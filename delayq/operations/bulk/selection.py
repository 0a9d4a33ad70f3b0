"""Select messages by what is known of them."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from delayq.errors import InvalidInput, UnreadableEnvelope
from delayq.model.envelope import Headers, parse
from delayq.model.text import decode_text, encode_id
from delayq.model.units import Seconds, milliseconds, timestamp_ms
from delayq.operations.doctor import scan
from delayq.operations.walk import Row
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute
from delayq.protocol.queue_commands import QueueCommands


@dataclass(frozen=True, slots=True)
class Choice:
    """Which messages are meant: those to which all that is given applies.

    Attributes:
        older_than: dead letters that died so long ago or longer; or at this moment or before.
        newer_than: dead letters that died less than so long ago; or after this moment.
        error: their last error has this in it, upper and lower case as it is; or a compiled pattern is found in it.
        reason: they died for this reason, literally.
        bare: nothing is known of an error of theirs.
        headers: they have all of these, with these values. A string also stands for a number, a boolean or bytes that
            read like it.
        payload: it has this in it, as text or bytes, upper and lower case as it is.
        id_prefix: their ids begin with this.
        since, until: their time is this moment or later, or earlier. It is when they are due; of those that run, when
            the lease ends; of dead letters, when they died.
        shown: returns what is known of an error or a reason; `error` and `reason` are looked for in that.
        shown_headers: returns what is known of headers; `headers` are looked for in that.
    """

    older_than: Seconds | dt.datetime | None = None
    newer_than: Seconds | dt.datetime | None = None
    error: str | re.Pattern[str] | None = None
    reason: str | None = None
    headers: Headers | None = None
    payload: str | bytes | None = None
    bare: bool = False
    shown: Callable[[str], str] | None = None
    shown_headers: Callable[[Headers], Headers] | None = None
    id_prefix: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def __post_init__(self) -> None:
        self.bounds(0)
        pattern = self.error.pattern if isinstance(self.error, re.Pattern) else self.error
        if pattern is not None and not (isinstance(pattern, str) and pattern):
            raise InvalidInput(
                f"error {self.error!r} is neither some text of the error, nor a compiled pattern of text"
            )
        if self.reason is not None and not isinstance(self.reason, str):
            raise InvalidInput(f"reason {self.reason!r} is not a string")
        if self.headers is not None and not (
            isinstance(self.headers, Mapping) and all(isinstance(name, str) for name in self.headers)
        ):
            raise InvalidInput(f"headers {self.headers!r} are not a mapping: give a dict of names and values")
        if self.payload is not None and not (isinstance(self.payload, str | bytes) and self.payload):
            raise InvalidInput(f"payload {self.payload!r} is not some text or bytes of a payload")
        since, until = self.span
        if since > until:
            raise InvalidInput(f"nothing is from {self.since} until {self.until}: give an end that is later")

    @property
    def is_of_envelopes(self) -> bool:
        """Whether the stored envelope decides, too."""
        return bool(self.headers) or self.payload is not None

    @property
    def is_of_all(self) -> bool:
        """Whether there is nothing that would keep a message out, but for its id and its time."""
        return self.error is None and self.reason is None and not (self.bare or self.is_of_envelopes)

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest time of those that are meant, ms; infinite where there is no bound."""
        since = -math.inf if self.since is None else timestamp_ms(self.since, "since")
        return since, math.inf if self.until is None else timestamp_ms(self.until, "until")

    def has_place(self, row: Row) -> bool:
        """Whether a message is meant by its id and its time, as far as `since` and `until` say."""
        since, until = self.span
        return row[0].startswith(self.id_prefix or "") and since <= float(row[1]) <= until

    def bounds(self, now_ms: int) -> tuple[int | None, int]:
        """Return after which time of death, if any, and up to which one they are meant, ms.

        Raises:
            InvalidTime: either is out of range.
        """
        after = None if self.newer_than is None else _moment(self.newer_than, "newer_than", now_ms)
        up_to = now_ms if self.older_than is None else min(now_ms, _moment(self.older_than, "older_than", now_ms))
        return after, up_to

    def means(self, error: str | None, reason: str | None, stored: bytes | None) -> bool:
        """Whether a message is meant, by what is known of it."""
        if self.shown is not None:
            error, reason = (text and self.shown(text) for text in (error, reason))
        if isinstance(self.error, str) and self.error not in (error or ""):
            return False
        if isinstance(self.error, re.Pattern) and (error is None or not self.error.search(error)):
            return False
        if self.bare and error:
            return False
        if self.reason is not None and reason != self.reason:
            return False
        return not self.is_of_envelopes or self._opens(stored)

    def _opens(self, stored: bytes | None) -> bool:
        try:
            envelope = parse(stored or b"")[1]
        except UnreadableEnvelope:
            return False
        wanted = self.payload.encode("utf-8", "surrogateescape") if isinstance(self.payload, str) else self.payload
        if wanted is not None and wanted not in envelope.body:
            return False
        if not self.headers:
            return True
        headers = envelope.headers or {}
        return _has(headers if self.shown_headers is None else self.shown_headers(headers), self.headers)


def _moment(given: Seconds | dt.datetime, what: str, now_ms: int) -> int:
    return timestamp_ms(given, what) if isinstance(given, dt.datetime) else now_ms - milliseconds(given, what)


def _has(headers: Headers, wanted: Headers) -> bool:
    return all(name in headers and _is(headers[name], value) for name, value in wanted.items())


def _is(value: Any, wanted: Any) -> bool:
    """Whether a header's value is the one that is wanted."""
    if not isinstance(wanted, str):
        return type(value) is type(wanted) and bool(value == wanted)
    if isinstance(value, bool):
        return wanted == str(value).lower()
    return wanted == (value.decode(errors="replace") if isinstance(value, bytes) else str(value))


def meant(
    scripts: QueueCommands, choice: Choice, ids: Sequence[str], sized: dict[str, int] | None = None
) -> Operation[list[str]]:
    """Return those of `ids`, of one shard, that are meant.

    Args:
        sized: the sizes of their envelopes, in bytes, where they are known already.
    """
    if not ids or choice.is_of_all:
        return list(ids)
    errors: list[Any] = [None] * len(ids)
    reasons: list[Any] = [None] * len(ids)
    stored: dict[str, bytes] = {}
    words, keys = list(map(encode_id, ids)), scripts.keys
    if choice.error is not None or choice.bare:
        errors = yield from execute(Command(keys.errors, ("HMGET", keys.errors, *words), list))
    if choice.reason is not None:
        reasons = yield from execute(Command(keys.reasons, ("HMGET", keys.reasons, *words), list))
    if choice.is_of_envelopes:
        left = dict(sized) if sized is not None else (yield from scan.sizes(scripts, ids))
        while left:
            stored |= yield from scan.envelopes(scripts, left)
    return [
        message_id
        for message_id, error, reason in zip(ids, errors, reasons, strict=True)
        if choice.means(decode_text(error), decode_text(reason), stored.get(message_id))
    ]
