"""Forms: one that is refused comes back on its page, with the reason beside the field and all that was typed."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from delayq.errors import InvalidInput
from delayq.model.text import printable
from delayq.model.units import from_ms, parse_age, timestamp_ms


class InvalidField(InvalidInput):
    """What a field of a form holds cannot be used.

    Attributes:
        field: its name.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@contextlib.contextmanager
def field(name: str) -> Iterator[None]:
    """Name the field whose value makes the block raise InvalidInput."""
    try:
        yield
    except InvalidField:
        raise
    except InvalidInput as error:
        raise InvalidField(name, str(error)) from error


def check_name(form: Mapping[str, str], kind: str, name: str) -> None:
    """Check the field of the macro `name_check`; raises InvalidField unless it holds the name.

    Args:
        kind: what has the name, as in "queue".
    """
    typed = form.get("name", "").strip()
    if typed not in {name.strip(), printable(name).strip()}:  # as it is, or as the page shows it
        wrong = f"{typed!r} is not the name of the {kind}" if typed else f"the name of the {kind} is missing"
        raise InvalidField("name", f"{wrong}: type {printable(name)} to confirm")


def past_time(text: str, now: dt.datetime) -> dt.datetime:
    """Return the moment that a field means: "2h" ago, or one that is written out; raises InvalidInput."""
    given = parse_age(text)
    ms = timestamp_ms(given) if isinstance(given, dt.datetime) else timestamp_ms(now) - given * 1000
    return from_ms(ms)


class Refusal(NamedTuple):
    """Why a form was refused.

    Attributes:
        status: of HTTP.
        field: the name of the field that is wrong; empty where it is none.
        headers: of the answer.
    """

    status: int
    text: str
    field: str = ""
    headers: Mapping[str, str] = {}
