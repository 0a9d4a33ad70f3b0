"""Ledgers for tests: entries as the scripts of a queue append them."""

from __future__ import annotations

from typing import Any

import redis

from delayq.model.packed_events import parts
from delayq.model.placement import shard_of
from delayq.protocol.queue_keys import QueueKeys

FIELDS = ("id", "event", "at", "attempt", "due", "late", "consumer", "reason")


def entry(message_id: str, event: str, at: int, **others: Any) -> dict[Any, Any]:
    """Return the fields of an entry; those that are not named are empty."""
    return {name: others.get(name, "") for name in FIELDS} | {"id": message_id, "event": event, "at": at}


def append(client: redis.Redis, message_id: str, event: str, at: int, *, shards: int = 1, **others: Any) -> str:
    """Append an entry to the ledger of queue "jobs"; return its id in there."""
    key = QueueKeys("delayq", "jobs", shard_of(message_id, shards)).events
    added: Any = client.xadd(key, entry(message_id, event, at, **others))
    return added.decode() if isinstance(added, bytes) else str(added)


def single_events(client: Any, key: str) -> list[dict[bytes, bytes]]:
    """Return the events of a ledger, oldest first, as entries of one event."""
    return [
        dict(zip(fields[::2], fields[1::2], strict=True))
        for entry, values in client.xrange(key)
        for _, fields in events_in(entry, values)
    ]


def events_in(entry: Any, values: dict[Any, Any]) -> list[Any]:
    """Return the events of an entry, as it was read by a client, with their ids."""
    words = [each if isinstance(each, bytes) else str(each).encode() for pair in values.items() for each in pair]
    return parts(entry.decode() if isinstance(entry, bytes) else entry, words)
