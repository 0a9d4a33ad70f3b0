"""Forms: a refused form comes back on its page, with the reason beside the field and everything that was typed."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from delayq.errors import InvalidInput
from delayq.model.text import printable
from delayq.model.units import from_ms, parse_age, timestamp_ms


class InvalidField(InvalidInput):
    """The value of a form field is invalid.

    Attributes:
        field: the name of the field.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(text)
        self.field = field


@contextlib.contextmanager
def field(name: str) -> Iterator[None]:
    """Turn an InvalidInput of the block into an InvalidField with this name."""
    try:
        yield
    except InvalidField:
        raise
    except InvalidInput as error:
        raise InvalidField(name, str(error)) from error


def check_choice(what: str, given: str, known: Iterable[str]) -> None:
    """Raise InvalidInput unless a field has one of its choices."""
    if given not in (choices := [*known]):
        raise InvalidInput(f"unknown {what} {given!r}; expected one of {', '.join(choices)}")


def check_name(form: Mapping[str, str], kind: str, name: str) -> None:
    """Check the field of the macro `name_check`; raises InvalidField unless it holds the name.

    Args:
        kind: what the name belongs to, such as "queue".
    """
    typed = form.get("name", "").strip()
    if typed not in {name.strip(), printable(name).strip()}:  # as it is, or as the page shows it escaped
        wrong = f"{typed!r} is not the name of the {kind}" if typed else f"the name of the {kind} is missing"
        raise InvalidField("name", f"{wrong}: type {printable(name)} to confirm")


def check_selected(ids: Sequence[object], what: str, most: int, is_all: bool = False) -> None:
    """Check how many things are selected in a list; raises InvalidField if they are too many, or none and not all."""
    if len(ids) > most:
        raise InvalidField("ids", f"{len(ids)} {what}s are selected: select at most {most}")
    if not (ids or is_all):
        raise InvalidField("ids", f"no {what} is selected: select at least one")


def past_time(text: str, now: dt.datetime) -> dt.datetime:
    """Return the time in a field: a time ago such as "2h", or a full time; raises InvalidInput."""
    given = parse_age(text)
    ms = timestamp_ms(given) if isinstance(given, dt.datetime) else timestamp_ms(now) - given * 1000
    return from_ms(ms)


class Refusal(NamedTuple):
    """Why a form was refused.

    Attributes:
        status: the HTTP status.
        field: the name of the invalid field; empty if there is none.
        headers: the headers of the answer.
    """

    status: int
    text: str
    field: str = ""
    headers: Mapping[str, str] = {}
