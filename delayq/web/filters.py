"""Filters for messages, as forms and links hold them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.causes import like
from delayq.model.choice import Choice, Found
from delayq.model.placement import STATES, State
from delayq.model.units import parse_age, parse_duration
from delayq.operations.bulk import search
from delayq.web.forms import InvalidField, check_choice, field
from delayq.web.redaction import Redaction
from delayq.web.states import WORDS

WHERE = ("payload", "header", "error")


class MessageFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter for the messages in a state; messages must match all fields that are not empty.

    Attributes:
        payload: text in the payload.
        header: a name and a value, such as ``tenant=acme``.
        error: text in the last error.
        reason: why they died.
        bare: messages without an error.
        kind: an error with its numbers as ``#``, as in `Cause.error`.
        older, newer: for dead letters: how long ago they died, such as ``1h30m``, or when.
        prefix: the start of the id.
        since, until: the range of the time in lists: a time, or its text, which may be a shift from now such as
            ``+2h`` or ``-10m``; empty for no bound.
        redaction: the values that are hidden from the user.
    """

    state: State = "pending"
    payload: str = ""
    header: str = ""
    error: str = ""
    reason: str = ""
    kind: str = ""
    bare: bool = False
    older: str = ""
    newer: str = ""
    prefix: str = ""
    since: str | dt.datetime = ""
    until: str | dt.datetime = ""
    redaction: Redaction = Redaction()

    @classmethod
    def of(cls, fields: Mapping[str, str], redaction: Redaction) -> MessageFilter:
        """Read the fields of a form or a link: those of a filter, or ``where`` and ``text`` of a search."""
        known: dict[str, Any] = {name: fields[name] for name in FIELDS if fields.get(name)}
        if fields.get("where") in WHERE and fields.get("text"):
            known[fields["where"]] = fields["text"]
        known["bare"] = "bare" in known
        check_choice("state", known.get("state", "pending"), STATES)
        return cls(**known, redaction=redaction).redacted()

    def redacted(self) -> MessageFilter:
        """Return it without hidden values in its texts; raises InvalidInput if it would reveal hidden values."""
        redaction = self.redaction
        redaction.check_payload(self.payload)
        redaction.check_header(self.header.partition("=")[0])
        texts = {name: redaction.text(getattr(self, name)) for name in ("error", "reason", "kind")}
        return msgspec.structs.replace(self, **texts)

    @property
    def is_empty(self) -> bool:
        """Whether it matches all messages in the state."""
        return not any(getattr(self, name) for name in FIELDS if name != "state")

    def fields(self) -> dict[str, str]:
        """Return the fields that `of` reads."""
        return {name: _text(value) for name in FIELDS if (value := getattr(self, name))}

    def choice(self) -> Choice:
        """Return the filter as the library takes it; raises InvalidInput."""
        name, equals, value = self.header.partition("=")
        if self.header and not (name and equals):
            raise InvalidField("header", f"header {self.header!r} is not a name and a value, such as tenant=acme")
        return Choice(
            older_than=_age("older", self.older),
            newer_than=_age("newer", self.newer),
            error=like(None, self.kind).error if self.kind else self.error or None,
            reason=self.reason or None,
            headers={name: value} if self.header else None,
            payload=self.payload or None,
            bare=self.bare,
            id_prefix=self.prefix or None,
            since=_moment("since", self.since),
            until=_moment("until", self.until),
            shown=self.redaction.text if self.redaction else None,
            shown_headers=self.redaction.headers if self.redaction else None,
        )

    async def find(self, queue: Queue, after: str | None = None, **limits: Any) -> Found:
        """Search for the messages; `limits` are those of the operation."""
        return await queue.execute(search.find, self.state, self.choice(), after, **limits)

    async def find_ids(self, queue: Queue, ids: Sequence[str], shown: int, largest: int) -> Found:
        """Find those of these messages that are in its state."""
        return await queue.execute(search.find_ids, self.state, ids, shown, largest)

    def words(self) -> str:
        """Describe the filter in words."""
        conditions = [
            f"with “{self.payload}” in the payload" if self.payload else "",
            f"with the header {self.header}" if self.header else "",
            f"with “{self.error}” in the last error" if self.error else "",
            f"with the error {self.kind}" if self.kind else "",
            "without an error" if self.bare else "",
            f"with the reason {self.reason}" if self.reason else "",
            f"dead for at least {self.older}" if self.older else "",
            f"dead for less than {self.newer}" if self.newer else "",
            f"whose id begins with “{self.prefix}”" if self.prefix else "",
            f"from {_text(self.since)}" if self.since else "",
            f"until {_text(self.until)}" if self.until else "",
        ]
        return self.redaction.text(" ".join([WORDS[self.state], *filter(None, conditions)]))


FIELDS = tuple(name for name in MessageFilter.__struct_fields__ if name != "redaction")
"""The fields of a form or a link."""


def _age(name: str, text: str) -> float | dt.datetime | None:
    with field(name):
        return parse_age(text) if text else None


def _text(value: str | bool | dt.datetime) -> str:
    """Return a field as `MessageFilter.of` reads it."""
    if isinstance(value, bool):
        return "1" if value else ""
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _moment(name: str, text: str | dt.datetime) -> dt.datetime | None:
    if not text or isinstance(text, dt.datetime):
        return text or None
    with field(name):
        given = shift_or_moment(text)
        try:
            return given if isinstance(given, dt.datetime) else dt.datetime.now(dt.UTC) + given
        except OverflowError as error:
            raise InvalidInput(f"{text!r} is not between 1970 and the year 9999") from error


def shift_or_moment(text: str) -> dt.timedelta | dt.datetime:
    """Read a duration with a sign, such as ``+10m`` or ``-1h``, or a time; raises InvalidInput."""
    if text[:1] in ("+", "-"):
        return dt.timedelta(seconds=parse_duration(text[1:])) * (-1 if text[0] == "-" else 1)
    given = parse_age(text)
    if not isinstance(given, dt.datetime):
        raise InvalidInput(f"{text!r} has no sign: write +{text} or -{text}, or a time such as 2026-12-24T18:00+01:00")
    return given


def quoted(message_id: str) -> str:
    """Return an id or a cursor in plain characters, even if it is not UTF-8, as ids of other programs may be."""
    return quote(message_id, safe="", errors="surrogateescape")


def unquoted(text: str) -> str:
    """Return the id or the cursor from a text that `quoted` made."""
    return unquote(text, errors="surrogateescape")
