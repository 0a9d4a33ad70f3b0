"""Choosing: which dead letters are meant."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delayq.envelope import Headers, parse
from delayq.errors import InvalidInput, UnreadableEnvelope
from delayq.times import Seconds, milliseconds, timestamp_ms


@dataclass(frozen=True, slots=True)
class Choice:
    """Which dead letters are meant: those to which all that is given applies.

    Attributes:
        older_than: they died so long ago or longer; or at this moment or before.
        newer_than: they died less than so long ago; or after this moment.
        error: their last error has this in it, upper and lower case as it is; or a compiled pattern is found in it.
        reason: they died for this reason, literally.
        headers: they have all of these, with these values. A string also stands for a number, a boolean or bytes that
            read like it.
    """

    older_than: Seconds | dt.datetime | None = None
    newer_than: Seconds | dt.datetime | None = None
    error: str | re.Pattern[str] | None = None
    reason: str | None = None
    headers: Headers | None = None

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
            raise InvalidInput(f"headers {self.headers!r} are no mapping: give a dict of names and values")

    def bounds(self, now_ms: int) -> tuple[int | None, int]:
        """Return after which time of death, if any, and up to which one they are meant, ms.

        Raises:
            InvalidTime: either is out of range.
        """
        after = None if self.newer_than is None else _moment(self.newer_than, "newer_than", now_ms)
        up_to = now_ms if self.older_than is None else min(now_ms, _moment(self.older_than, "older_than", now_ms))
        return after, up_to

    def means(self, error: str | None, reason: str | None, stored: bytes | None) -> bool:
        """Whether a dead letter is meant, by what is known of it."""
        if isinstance(self.error, str) and self.error not in (error or ""):
            return False
        if isinstance(self.error, re.Pattern) and (error is None or not self.error.search(error)):
            return False
        if self.reason is not None and reason != self.reason:
            return False
        return not self.headers or _has(stored, self.headers)


def _moment(given: Seconds | dt.datetime, what: str, now_ms: int) -> int:
    return timestamp_ms(given, what) if isinstance(given, dt.datetime) else now_ms - milliseconds(given, what)


def _has(stored: bytes | None, wanted: Headers) -> bool:
    try:
        headers = parse(stored or b"")[1].headers or {}
    except UnreadableEnvelope:
        return False
    return all(name in headers and _is(headers[name], value) for name, value in wanted.items())


def _is(value: Any, wanted: Any) -> bool:
    """Whether a header's value is the one that is wanted."""
    if not isinstance(wanted, str):
        return type(value) is type(wanted) and bool(value == wanted)
    if isinstance(value, bool):
        return wanted == str(value).lower()
    return wanted == (value.decode(errors="replace") if isinstance(value, bytes) else str(value))
