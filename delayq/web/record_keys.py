"""The keys by which links and forms name records of topics and dead letters of groups: shard and id."""

from __future__ import annotations

import re

from delayq.errors import InvalidInput
from delayq.model.positions import Place, known_id

MOST_KEYS = 100
"""How many records or dead letters a form or a request may name."""


def key_of(place: Place) -> str:
    """Return the key of a place."""
    return f"{place.shard}.{place.id}"


def place_of(key: str) -> Place:
    """Return the place with this key; raises InvalidInput."""
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,16}-\d{1,16})", key, re.ASCII)
    if found is None:
        raise InvalidInput(f"{key[:64]!r} is not the key of a record: reload the list")
    return Place(int(found[1]), known_id(found[2]))
