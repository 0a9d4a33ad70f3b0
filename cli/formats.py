"""Places in a topic as people write them; and times as people read them."""

from __future__ import annotations

import datetime as dt
import re

from delayq.errors import InvalidTime
from delayq.model import units
from delayq.model.units import parse_moment

_POSITION = re.compile(r"[-+$]|\(?\d+(-\d+)?", re.ASCII)

show_duration = units.show_duration


def parse_position(text: str) -> str | dt.datetime:
    """Return a place in a topic: the id of a record, ``-``, ``+`` or ``$`` as it is, or the moment for which it stands.

    Raises:
        InvalidTime: anything else.
    """
    written = text.strip()
    if _POSITION.fullmatch(written):
        return written
    try:
        return parse_moment(written)
    except InvalidTime as error:
        raise InvalidTime(f"{text!r} is no id of a record, as in 1700000000000-0; and as a time: {error}") from error


def show_moment(moment: dt.datetime | None, relative: bool = True) -> str:
    """Return a moment in local time and, when `relative`, how far it is from now; ``-`` for None."""
    return "-" if moment is None else units.show_moment(moment, dt.datetime.now(dt.UTC) if relative else None)
