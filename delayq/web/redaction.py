"""Redaction: hides the values of named fields and headers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from delayq.errors import InvalidInput
from delayq.model.envelope import JSON, RAW, Envelope
from delayq.model.event import Event
from delayq.model.message_info import MessageInfo
from delayq.model.record import DeadRecord
from delayq.web.forms import InvalidField

REDACTED = "[redacted]"
MOST = 1024 * 1024  # bytes of a payload that is searched; a larger one is hidden as a whole


class Redaction:
    """Hides the values of named fields and headers, in upper or lower case, at any depth of a payload.

    Content that cannot be searched is hidden as a whole: bytes that are not a JSON object or list, and payloads over a
    megabyte. In other text, such as errors, the rest of a line after a name and ``=`` or ``:`` is hidden.

    Args:
        names: the names of fields and headers; without names, everything is shown.

    Raises:
        InvalidInput: `names` is a string, or contains an invalid name.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        if isinstance(names, str):
            raise InvalidInput(f"redact {names!r} is a string: give a list of names")
        known = list(names)
        if wrong := [name for name in known if not isinstance(name, str) or not name.strip()]:
            raise InvalidInput(f"redact {wrong[0]!r} is not the name of a field: give a list of names")
        self.names = frozenset(name.strip().casefold() for name in known)
        each = "|".join(map(re.escape, sorted(self.names, key=len, reverse=True)))
        self._line = re.compile(rf"(?im)((?:{each})\\?[\"']?\s*[:=])\s*.*$")

    def __bool__(self) -> bool:
        return bool(self.names)

    def info(self, info: MessageInfo) -> MessageInfo:
        """Return a message without hidden values in its payload, headers, error and reason."""
        if not self:
            return info
        return msgspec.structs.replace(
            info,
            envelope=None if info.envelope is None else self.envelope(info.envelope),
            headers=None if info.headers is None else self.headers(info.headers),
            error=None if info.error is None else self.text(info.error),
            reason=None if info.reason is None else self.text(info.reason),
        )

    def hidden(self, info: MessageInfo) -> set[str]:
        """Return which of "payload" and "headers" have hidden values."""
        shown = self.info(info)
        both = {"payload": (info.body, shown.body), "headers": (info.headers, shown.headers)}
        return {name for name, (old, new) in both.items() if old != new}

    def envelope(self, envelope: Envelope) -> Envelope:
        """Return an envelope without hidden values; a payload that is hidden as a whole becomes ``[redacted]``."""
        if not self:
            return envelope
        body = self._body(envelope)
        return msgspec.structs.replace(
            envelope,
            kind=envelope.kind if body is not None else RAW,
            body=REDACTED.encode() if body is None else body,
            headers=None if envelope.headers is None else self.headers(envelope.headers),
        )

    def headers(self, headers: Mapping[str, Any]) -> dict[str, Any]:
        """Return headers without hidden values, or the fields of an entry of another program."""
        return {name: self._value(name, value) if self else value for name, value in headers.items()}

    def letter(self, letter: DeadRecord) -> DeadRecord:
        """Return a dead letter without hidden values in its reason and errors; its record is unchanged."""
        return letter._replace(reason=self.text(letter.reason), errors=[*map(self.text, letter.errors)])

    def event(self, event: Event) -> Event:
        """Return a ledger entry without hidden values."""
        return event if not event.reason else msgspec.structs.replace(event, reason=self.text(event.reason))

    def text(self, text: str) -> str:
        """Return a text without hidden values: each line is cut before the value of a hidden name."""
        return self._line.sub(rf"\1 {REDACTED}", text) if self and self._mentions(text) else text

    def check_payload(self, text: str) -> None:
        """Raise InvalidField for a search in payloads, which would answer guesses at hidden values."""
        if self and text:
            raise InvalidField("payload", "payloads cannot be searched: this dashboard hides some fields (--redact)")

    def check_header(self, name: str) -> None:
        """Raise InvalidField for a search for the value of a hidden header."""
        if name.casefold() in self.names:
            raise InvalidField("header", f"header {name!r} cannot be searched: this dashboard hides it (--redact)")

    def _body(self, envelope: Envelope) -> bytes | None:
        """Return a payload without hidden values; None if all of it is hidden."""
        body = envelope.body
        if len(body) > MOST or (envelope.kind != JSON and body.lstrip()[:1] not in (b"{", b"[")):
            return None
        try:
            return self._json(body.decode())
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return None

    def _json(self, text: str) -> bytes:
        """Return JSON without hidden values, with numbers exactly as written; raises ValueError or RecursionError."""
        if not self._mentions(text):
            msgspec.json.decode(text)  # checks it
            return text.encode()
        found = json.loads(text, object_pairs_hook=self._object, parse_float=_number, parse_constant=_refuse)
        return msgspec.json.encode(self._shown(found))

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: self._value(name, value) for name, value in pairs}

    def _value(self, name: str, value: Any) -> Any:
        return REDACTED if name.casefold() in self.names else self._shown(value)

    def _shown(self, value: Any) -> Any:
        """Return a value without hidden values in its texts; its objects have been searched already."""
        if isinstance(value, list):
            return [self._shown(each) for each in value]
        if isinstance(value, bytes):
            return REDACTED.encode()
        if not isinstance(value, str) or not self._mentions(value):
            return value
        if value.lstrip()[:1] in ("{", "["):  # JSON within JSON
            try:
                return self._json(value).decode()
            except (ValueError, RecursionError, msgspec.MsgspecError):
                return REDACTED
        return self.text(value)

    def _mentions(self, text: str) -> bool:
        folded = text.casefold()
        return "\\" in text or any(name in folded for name in self.names)  # an escape may spell a name


def _number(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON")
