"""Forms: one that is refused comes back on its page, with the reason beside the field and all that was typed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from delayq.errors import InvalidInput


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
