"""How far a handler is with its message."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import msgspec

from delayq.errors import InvalidInput

MAX_TEXT = 200
EVERY_SECONDS = 1.0
"""Between two reports of a delivery that are written."""


class HandlerProgress(NamedTuple):
    """How far a handler is with its message.

    Attributes:
        done: how much of the work is done, 0 or more.
        total: all of the work; None if it is unknown.
        text: what the handler says.
    """

    done: int | float
    total: int | float | None = None
    text: str = ""

    def __str__(self) -> str:
        of = f"{self.done:,}" if self.total is None else f"{self.done:,} of {self.total:,}"
        return f"{of}: {self.text}" if self.text else of


def checked(done: Any, total: Any, text: Any) -> HandlerProgress:
    """Return a report; raises InvalidInput."""
    for name, number in (("done", done), ("total", total)):
        if name == "total" and number is None:
            continue
        if isinstance(number, bool) or not isinstance(number, int | float) or not 0 <= number < math.inf:
            raise InvalidInput(f"progress: {name}={number!r} is not a number of 0 or more")
        if number > 2**53:
            raise InvalidInput(f"progress: {name}={number!r} is more than 2**53, which JSON readers cannot tell apart")
    if not isinstance(text, str):
        raise InvalidInput(f"progress: text={text!r} is not a string")
    return HandlerProgress(done, total, text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…")


def encoded(progress: HandlerProgress) -> bytes:
    """Return a report as it is stored."""
    done, total, text = progress
    return msgspec.json.encode((done, total, text.encode(errors="replace").decode()))


def decoded(stored: bytes | None) -> HandlerProgress | None:
    """Return a stored report; None if there is none, or another program has written it."""
    try:
        return None if stored is None else msgspec.json.decode(stored, type=HandlerProgress)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
