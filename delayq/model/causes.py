"""Causes: why messages died, in groups of the same reason and similar errors."""

from __future__ import annotations

import datetime as dt
import re

import msgspec

from delayq.model.choice import Choice
from delayq.model.outcome import cause

MAX_KIND = 200  # characters

_NUMBER = re.compile(r"\d+")


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters that died for the same reason, with the same kind of error.

    Attributes:
        reason: why they died, or None.
        error: the first line of their last error, at most 200 characters, with each number as ``#``; None without one.
        count: how many there are.
        first_at, last_at: when the first and the last of them died.
        example: the id of the last one.
        last_hour, hour_before: how many of them died in the last hour, and in the hour before; 0 if no time was given
            to count back from.
    """

    reason: str | None
    error: str | None
    count: int
    first_at: dt.datetime
    last_at: dt.datetime
    example: str
    last_hour: int = 0
    hour_before: int = 0

    @property
    def text(self) -> str:
        """The reason and the error as one text."""
        return cause(self.reason, self.error)


class Causes(msgspec.Struct, frozen=True, kw_only=True):
    """The causes of a queue's dead letters.

    Attributes:
        total: how many dead letters there are.
        looked_at: how many of them were read, the latest first.
        causes: the causes, the most frequent first.
    """

    total: int
    looked_at: int
    causes: list[Cause]


def kind_of(error: str | None) -> str | None:
    """Return the first line of an error with each number as ``#``, so that it is the same for similar messages."""
    if not error:
        return None
    line = error.partition("\n")[0]
    return _NUMBER.sub("#", line)[:MAX_KIND]


def like(reason: str | None, kind: str | None) -> Choice:
    """Return a choice of the messages with a cause."""
    if kind is None:
        return Choice(reason=reason, bare=True)
    # Match a number as a whole or not at all: otherwise several # in a row would backtrack over all digits.
    pattern = r"(?:\d++|#)".join(map(re.escape, kind.split("#")))
    end = "" if len(kind) >= MAX_KIND else r"(?:\n|\Z)"
    return Choice(reason=reason, error=re.compile(rf"\A{pattern}{end}"))
