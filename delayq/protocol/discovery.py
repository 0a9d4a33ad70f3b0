"""Which queues and topics a server holds, told from the names of its keys."""

from __future__ import annotations

import contextlib
import re
from typing import Final, Literal

from delayq.errors import InvalidName
from delayq.model.validation import check_queue_name

Kind = Literal["queue", "topic"]

_RECORDS: Final = {"queue": "meta", "topic": "topic:meta"}
"""The key that each one has for as long as it is recorded."""


def pattern(prefix: str, kind: Kind | None = None) -> str:
    """Return what SCAN is to match, for queues and topics when no kind is given: `name_in` then tells which."""
    literal = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)
    return f"{literal}:{{*}}:{_RECORDS[kind] if kind else '*meta'}"


def record_key(name: str, prefix: str, kind: Kind) -> str | None:
    """Return the key that tells that there is one of this name; None for what can be no name."""
    with contextlib.suppress(InvalidName):
        return f"{prefix}:{{{check_queue_name(name)}}}:{_RECORDS[kind]}"
    return None


def name_in(key: bytes | str, prefix: str, kind: Kind) -> str | None:
    """Return the name that a key tells; None when it is a shard's, or a key of another program's."""
    text = key if isinstance(key, str) else key.decode(errors="replace")
    name = text.removeprefix(f"{prefix}:{{").removesuffix(f"}}:{_RECORDS[kind]}")
    with contextlib.suppress(InvalidName):
        return check_queue_name(name) if "\ufffd" not in name else None
    return None
