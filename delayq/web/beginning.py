"""Where a group starts to read, as entered in a form."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final, NamedTuple

from delayq.errors import InvalidInput
from delayq.model.positions import Position, beginning
from delayq.web.forms import field, past_time

BEGINNINGS: Final = {
    "end": "records published from now on",
    "start": "the first record",
    "id": "the record after an id",
    "time": "records published since a time",
}
"""The choices of the form."""

_ENDS = {"end": "$", "start": "0"}


class Beginning(NamedTuple):
    """Where a group starts.

    Attributes:
        where: a key of BEGINNINGS.
        text: the id, or the time.
        position: the library's form of it.
    """

    where: str
    text: str
    position: Position

    @classmethod
    def of(cls, form: Mapping[str, str], now: dt.datetime) -> Beginning:
        """Read a form; raises InvalidInput.

        Args:
            now: the server's clock; a length of time is subtracted from it.
        """
        where, text = form.get("where", ""), form.get("position", "").strip()
        if where in _ENDS:
            return cls(where, "", _ENDS[where])
        with field("position"):
            if where == "id":
                beginning(text, "position")
                return cls(where, text, text)
            if where == "time":
                at = past_time(text, now)
                return cls(where, at.isoformat(), at)
        raise InvalidInput(f"unknown position {where!r}; expected one of {', '.join(BEGINNINGS)}")

    def words(self) -> str:
        """Say it."""
        words = BEGINNINGS[self.where]
        if isinstance(self.position, dt.datetime):
            return words.replace("a time", f"{self.position.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC")
        return words.replace("an id", self.text)
