"""Find the queues and topics on a server: in the registry of their names, or from the names of all keys.

The registry has no hash tag, so it matches no pattern for the keys of queues, and no queue's key can be its key:

    delayq:queues   the names of the queues; a set
    delayq:topics   the names of the topics
"""

from __future__ import annotations

import contextlib
import re
from typing import Final

from delayq.errors import InvalidName
from delayq.model.validation import Kind, check_queue_name

_RECORDS: Final = {"queue": "meta", "topic": "topic:meta"}
"""The key that each one has as long as it is recorded."""


def pattern(prefix: str, kind: Kind | None = None) -> str:
    """Return the pattern for SCAN; without a kind, for queues and topics, which `name_in` tells apart."""
    literal = re.sub(r"([*?\[\]\\])", r"\\\1", prefix)
    return f"{literal}:{{*}}:{_RECORDS[kind] if kind else '*meta'}"


def registry_key(prefix: str, kind: Kind) -> str:
    """Return the key of the set that has the names."""
    return f"{prefix}:{kind}s"


def record_key(name: str, prefix: str, kind: Kind) -> str | None:
    """Return the key that exists if there is one with this name; None for an invalid name."""
    with contextlib.suppress(InvalidName):
        return f"{prefix}:{{{check_queue_name(name)}}}:{_RECORDS[kind]}"
    return None


def name_in(key: bytes | str, prefix: str, kind: Kind) -> str | None:
    """Return the name in a key; None if it is the key of a shard or of another program."""
    text = key if isinstance(key, str) else key.decode(errors="replace")
    name = text.removeprefix(f"{prefix}:{{").removesuffix(f"}}:{_RECORDS[kind]}")
    with contextlib.suppress(InvalidName):
        return check_queue_name(name) if "\ufffd" not in name else None
    return None
