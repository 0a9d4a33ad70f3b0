"""Redaction: the values of named fields and headers that no page shows."""

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
MOST = 1024 * 1024  # bytes of a payload that is looked through; a longer one is hidden as a whole


class Redaction:
    """Hides the values of fields and headers of some names, in upper or lower case, at any depth of a payload.

    What cannot be looked through is hidden as a whole: bytes that are not a JSON object or list, and payloads of more
    than a megabyte. In other text, such as an error, the rest of a line behind a name and ``=`` or ``:`` is hidden.

    Args:
        names: of fields and headers; with none, all is shown.

    Raises:
        InvalidInput: `names` is a string, or holds what is not a name.
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
        """Return what may be shown of a message: its payload, headers, error and reason."""
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
        """Return which of "payload" and "headers" are not shown as they are."""
        shown = self.info(info)
        both = {"payload": (info.body, shown.body), "headers": (info.headers, shown.headers)}
        return {name for name, (old, new) in both.items() if old != new}

    def envelope(self, envelope: Envelope) -> Envelope:
        """Return what may be shown of an envelope: the bytes ``[redacted]`` for a payload that is hidden as a whole."""
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
        """Return what may be shown of headers, or of the fields of an entry that another program has appended."""
        return {name: self._value(name, value) if self else value for name, value in headers.items()}

    def letter(self, letter: DeadRecord) -> DeadRecord:
        """Return a dead letter of a group with what may be shown of its reason and errors; its record is as before."""
        return letter._replace(reason=self.text(letter.reason), errors=[*map(self.text, letter.errors)])

    def event(self, event: Event) -> Event:
        """Return what may be shown of an entry of a ledger."""
        return event if not event.reason else msgspec.structs.replace(event, reason=self.text(event.reason))

    def text(self, text: str) -> str:
        """Return what may be shown of a text: of a line, what comes before the value of a name."""
        return self._line.sub(rf"\1 {REDACTED}", text) if self and self._mentions(text) else text

    def check_payload(self, text: str) -> None:
        """Refuse to search payloads for a text: each guess at a hidden value would be answered; raises InvalidField."""
        if self and text:
            raise InvalidField("payload", "payloads cannot be searched: this dashboard hides fields of them (--redact)")

    def check_header(self, name: str) -> None:
        """Refuse to look for the value of a header that is hidden; raises InvalidField."""
        if name.casefold() in self.names:
            raise InvalidField("header", f"header {name!r} cannot be searched: this dashboard hides it (--redact)")

    def _body(self, envelope: Envelope) -> bytes | None:
        """Return a payload without what is hidden; None where all of it is."""
        body = envelope.body
        if len(body) > MOST or (envelope.kind != JSON and body.lstrip()[:1] not in (b"{", b"[")):
            return None
        try:
            return self._json(body.decode())
        except (ValueError, RecursionError, msgspec.MsgspecError):
            return None

    def _json(self, text: str) -> bytes:
        """Return JSON without what is hidden, its numbers as they are written; raises ValueError or RecursionError."""
        if not self._mentions(text):
            msgspec.json.decode(text)  # which checks it
            return text.encode()
        found = json.loads(text, object_pairs_hook=self._object, parse_float=_number, parse_constant=_refuse)
        return msgspec.json.encode(self._shown(found))

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: self._value(name, value) for name, value in pairs}

    def _value(self, name: str, value: Any) -> Any:
        return REDACTED if name.casefold() in self.names else self._shown(value)

    def _shown(self, value: Any) -> Any:
        """Return a value without what texts in it hide; objects in it were looked through before."""
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
