"""Which messages to select, by their errors, reasons, headers, payloads, ids and times."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from delayq.errors import InvalidInput, UnreadableEnvelope
from delayq.model.envelope import Headers, check_header_names, parse
from delayq.model.message_info import MessageInfo
from delayq.model.units import Seconds, milliseconds, timestamp_ms


class Choice(msgspec.Struct, frozen=True):
    """Filters for messages. A message is selected if all given filters match.

    Attributes:
        older_than: dead letters that died at least this long ago, or at or before this moment.
        newer_than: dead letters that died less than this long ago, or after this moment.
        error: text that their last error contains (case-sensitive), or a compiled pattern that is found in it.
        reason: the exact reason for which they died.
        bare: whether they have no error.
        headers: headers that they all have, with these values. A string also matches a number, a boolean or bytes that
            read the same.
        payload: text or bytes that the payload contains (case-sensitive).
        id_prefix: the beginning of their ids.
        since, until: their time is at or after `since` and before `until`. It is the due time; for running messages,
            the end of the lease; for dead letters, the time of death.
        shown: returns the visible form of an error or a reason, in which `error` and `reason` are searched.
        shown_headers: returns the visible form of headers, in which `headers` are searched.
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
            raise InvalidInput(f"error {self.error!r} is not a non-empty string or compiled pattern of str")
        if self.reason is not None and not isinstance(self.reason, str):
            raise InvalidInput(f"reason {self.reason!r} is not a string")
        if self.headers is not None and not isinstance(self.headers, Mapping):
            raise InvalidInput(f"headers {self.headers!r} is not a mapping: give a dict of names and values")
        check_header_names(self.headers or {})
        if self.payload is not None and not (isinstance(self.payload, str | bytes) and self.payload):
            raise InvalidInput(f"payload {self.payload!r} is not text or bytes: give a part of the payload")
        since, until = self.span
        if since > until:
            raise InvalidInput(f"the time span from {self.since} until {self.until} is empty: give a later end")

    @property
    def is_of_envelopes(self) -> bool:
        """Whether a filter needs the stored envelope."""
        return bool(self.headers) or self.payload is not None

    @property
    def is_of_all(self) -> bool:
        """Whether only the id and the time of a message decide."""
        return self.error is None and self.reason is None and not (self.bare or self.is_of_envelopes)

    @property
    def span(self) -> tuple[float, float]:
        """The lowest and the highest selected time, ms; infinite without a bound."""
        since = -math.inf if self.since is None else timestamp_ms(self.since, "since")
        return since, math.inf if self.until is None else timestamp_ms(self.until, "until")

    def has_place(self, row: tuple[str, bytes]) -> bool:
        """Whether a message is selected by its id, `since` and `until`."""
        since, until = self.span
        return row[0].startswith(self.id_prefix or "") and since <= float(row[1]) <= until

    def bounds(self, now_ms: int) -> tuple[int | None, int]:
        """Return the bounds of the selected times of death, ms: after the first, if any, and up to the second.

        Raises:
            InvalidTime: either is out of range.
        """
        after = None if self.newer_than is None else _moment(self.newer_than, "newer_than", now_ms)
        up_to = now_ms if self.older_than is None else min(now_ms, _moment(self.older_than, "older_than", now_ms))
        return after, up_to

    def means(self, error: str | None, reason: str | None, stored: bytes | None) -> bool:
        """Whether a message is selected by its error, its reason and its stored envelope."""
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
        headers = envelope.sent_headers
        return _has(headers if self.shown_headers is None else self.shown_headers(headers), self.headers)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search has found so far.

    Attributes:
        messages: the first ones, as they were seen.
        sizes: the stored bytes of each payload, including headers, by id.
        matched: how many it has found.
        looked_at: how many it has looked at.
        total: how many the state holds.
        cursor: where another search may continue; None at the end.
        first_at, last_at: the earliest and the latest time of those found, or None.
    """

    messages: list[MessageInfo]
    sizes: dict[str, int]
    matched: int
    looked_at: int
    total: int
    cursor: str | None = None
    first_at: dt.datetime | None = None
    last_at: dt.datetime | None = None

    @property
    def is_all(self) -> bool:
        """Whether all messages of the state were looked at."""
        return self.cursor is None or self.looked_at >= self.total


def _moment(given: Seconds | dt.datetime, what: str, now_ms: int) -> int:
    return timestamp_ms(given, what) if isinstance(given, dt.datetime) else now_ms - milliseconds(given, what)


def _has(headers: Headers, wanted: Headers) -> bool:
    return all(name in headers and _is(headers[name], value) for name, value in wanted.items())


def _is(value: Any, wanted: Any) -> bool:
    """Whether a header's value matches the wanted one."""
    if not isinstance(wanted, str):
        return type(value) is type(wanted) and bool(value == wanted)
    if isinstance(value, bool):
        return wanted == str(value).lower()
    return wanted == (value.decode(errors="replace") if isinstance(value, bytes) else str(value))
