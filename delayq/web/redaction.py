"""Redaction: hides the values of named fields and headers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from delayq.errors import InvalidInput
from delayq.model.envelope import FORMAT, JSON, RAW, Envelope, nests_too_deep
from delayq.model.event import Event
from delayq.model.message_info import MessageInfo
from delayq.model.record import DeadRecord
from delayq.model.result import TaskResult
from delayq.web.forms import InvalidField
from delayq.web.hidden_names import HiddenNames, TooMuch, is_value, opening, plain_name
from delayq.web.json_redaction import JsonRedaction

REDACTED = "[redacted]"
MOST = 1024 * 1024  # bytes of a payload, and characters of a text, that are searched; a larger one is hidden as a whole
MOST_REMEMBERED, LARGEST_REMEMBERED = (
    1000,
    4096,
)  # texts, and characters of each: errors repeat, and live pages look again
MOST_NESTED = 16  # times that JSON may contain JSON as text

T = TypeVar("T")
Made = TypeVar("Made")

_SEPARATOR = re.compile(r"(?:\\*[\"']?\s*[:=])?")
_HIDDEN = f'"{REDACTED}"'


async def in_turns(make: Callable[[T], Made], items: Iterable[T]) -> list[Made]:
    """Return what a function that redacts makes of each item.

    A payload can take a second, in which nobody else is answered. So it rests after each as long as that took.
    """
    made: list[Made] = []
    for each in items:
        began = time.monotonic()
        made.append(make(each))
        await asyncio.sleep(time.monotonic() - began)
    return made


class Redaction:
    """Hides the values of named fields and headers, at any depth of a payload and however the names are encoded.

    Content that cannot be searched is hidden as a whole: bytes that are not a JSON object or list, payloads over a
    megabyte, and texts encoded too many times over. In other text, such as errors, all that follows a name is hidden.

    Args:
        names: the names of fields and headers; without names, everything is shown.

    Raises:
        InvalidInput: `names` is a string, or contains an invalid name.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        if isinstance(names, str):
            raise InvalidInput(f"redact {names!r} is a string: give a list of names")
        known = list(names)
        if wrong := [name for name in known if not isinstance(name, str) or not plain_name(name)]:
            raise InvalidInput(f"redact {wrong[0]!r} is not the name of a field: give a list of names")
        self._names = HiddenNames(known)
        self._remembered = lru_cache(MOST_REMEMBERED)(self._bounded)

    def __bool__(self) -> bool:
        return bool(self._names)

    def info(self, info: MessageInfo) -> MessageInfo:
        """Return a message without hidden values in its payload, headers, error, reason and progress."""
        if not self:
            return info
        return msgspec.structs.replace(
            info,
            envelope=None if info.envelope is None else self.envelope(info.envelope),
            headers=None if info.headers is None else self.headers(info.headers),
            error=None if info.error is None else self.text(info.error),
            reason=None if info.reason is None else self.text(info.reason),
            progress=None if info.progress is None else info.progress._replace(text=self.text(info.progress.text)),
        )

    def result(self, result: TaskResult) -> TaskResult:
        """Return the result of a task without hidden values in its arguments, its value and its error."""
        if not self:
            return result
        return msgspec.structs.replace(
            result,
            arguments=None if result.arguments is None else self.value(result.arguments),
            value=self.value(result.value),
            error=result.error and result.error.shown(self.text),
        )

    def value(self, value: Any) -> Any:
        """Return what JSON holds without hidden values; ``[redacted]`` if it is hidden as a whole."""
        if not self:
            return value
        body = self._body(Envelope(FORMAT, JSON, msgspec.json.encode(value), 0))
        return REDACTED if body is None else msgspec.json.decode(body)

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
        if not self:
            return dict(headers)
        try:
            with self._names.bounded(sum(len(str(each)) for pair in headers.items() for each in pair)):
                return self._headers(headers)
        except TooMuch:
            return {REDACTED: REDACTED}

    def letter(self, letter: DeadRecord) -> DeadRecord:
        """Return a dead letter without hidden values in its reason and errors; its record is unchanged."""
        return letter._replace(reason=self.text(letter.reason), errors=[*map(self.text, letter.errors)])

    def event(self, event: Event) -> Event:
        """Return a ledger entry without hidden values."""
        return event if not event.reason else msgspec.structs.replace(event, reason=self.text(event.reason))

    def text(self, text: str) -> str:
        """Return a text without hidden values: if it is not JSON, all that follows a hidden name is cut off."""
        if not self:
            return text
        return self._remembered(text) if len(text) <= LARGEST_REMEMBERED else self._bounded(text)

    def _bounded(self, text: str) -> str:
        try:
            with self._names.bounded(len(text)):
                return self._text(text)
        except TooMuch:
            return REDACTED

    def check_payload(self, text: str) -> None:
        """Raise InvalidField for a search in payloads, which would answer guesses at hidden values."""
        if self and text:
            raise InvalidField("payload", "payloads cannot be searched: this dashboard hides some fields (--redact)")

    def check_header(self, name: str) -> None:
        """Raise InvalidField for a search for the value of a hidden header."""
        with contextlib.suppress(TooMuch):
            if not self or not self._names.is_field(name):
                return
        raise InvalidField("header", f"header {name!r} cannot be searched: this dashboard hides it (--redact)")

    def _body(self, envelope: Envelope) -> bytes | None:
        """Return a payload without hidden values; None if all of it is hidden."""
        body = envelope.body
        if (
            len(body) > MOST
            or nests_too_deep(body)
            or (envelope.kind != JSON and body.lstrip()[:1] not in (b"{", b"["))
        ):
            return None
        try:
            with self._names.bounded(len(body)):
                return self._json(body.decode()).encode()
        except (ValueError, RecursionError, msgspec.MsgspecError, TooMuch):
            return None

    def _headers(self, headers: Mapping[str, Any]) -> dict[str, Any]:
        texts = (each.decode(errors="replace") if isinstance(each, bytes) else each for each in headers.values())
        is_pair = any(isinstance(each, str) and self._names.are_all_of(each) for each in texts)
        return {
            self.text(name): REDACTED if is_pair or self._names.is_field(name) else self._value(value)
            for name, value in headers.items()
        }

    def _value(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return REDACTED.encode()
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str, nested: int = 0) -> str:
        if len(text) > MOST:
            return REDACTED
        if not self._names.are_in(text):
            return text
        if text.lstrip()[:1] in ("{", "[", '"') and nested < MOST_NESTED:
            try:
                return self._json(text, nested + 1)
            except (RecursionError, msgspec.MsgspecError):
                pass
        return self._cut(text) if self._names.have_values_in(text) else text

    def _cut(self, text: str) -> str:
        """Return the beginning of a text that has a hidden value; nothing of it if an encoded name comes first."""
        place = self._names.place(text)
        if place is None or self._names.have_values_in(text[: place[0]]):
            return REDACTED
        start, end = place
        if is_value(text, start, end):
            return text[: opening(text, start) or 0] + REDACTED
        separator = _SEPARATOR.match(text, end)
        return f"{text[: separator.end() if separator else end]} {REDACTED}"

    def _json(self, text: str, nested: int = 0) -> str:
        """Return JSON without hidden values, and the rest exactly as written.

        Raises:
            MsgspecError: it is not JSON.
            RecursionError: it is too deep.
        """
        msgspec.json.decode(text)  # checks it
        if nested == 0 and "\\\\" not in text and not self._names.are_in(text):  # with them, each text tells more
            return text
        return JsonRedaction(text, self._names, lambda each: self._text(each, nested), _HIDDEN).result()
