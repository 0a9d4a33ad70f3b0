"""A ledger must have as many entries per event as were counted, and each message must be where its last entry says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from delayq.model.placement import STATES
from delayq.protocol.queue_keys import QueueKeys
from tests.harness.ledgers import single_events
from tests.harness.model.ledger import LEAVES_IN

FIELDS = ["id", "event", "at", "attempt", "due", "late", "consumer", "reason"]
IS_IN = {event: state for event, (state, _) in LEAVES_IN.items()}
"""Where a message is after an event; `repaired` tells nothing of that."""


def entries(queue: Any, client: Any = None) -> list[dict[str, str]]:
    """Return the entries of all shards, in order within a shard; `client` is as in `check`."""
    return [entry for keys in _shards(queue) for entry in _entries(client or queue._executor.client, keys)]


def check(queue: Any, *but: str, client: Any = None) -> Counter[str]:
    """Check a ledger that was kept from the start and never trimmed; return its number of entries for each event.

    Args:
        but: counters that other programs have changed.
        client: a client of the server; None for the queue's own, which must be a sync one.
    """
    noted, counted = Counter[str](), Counter[str]()
    client = client or queue._executor.client
    for keys in _shards(queue):
        last: dict[str, dict[str, str]] = {}
        for entry in _entries(client, keys):
            noted[entry["event"]] += 1
            if entry["event"] != "repaired":
                last[entry["id"]] = entry
            if entry["late"]:
                assert int(entry["late"]) == int(entry["at"]) - int(entry["due"]), entry
        for entry in last.values():
            _check_last(client, keys, entry)
        stats = {_text(name): int(count) for name, count in client.hgetall(keys.stats).items()}
        counted.update({event: stats.get(event, 0) for event in IS_IN})
    expected = counted - Counter(released=counted["held_back"])  # held back messages count as released too
    differ = {event for event in noted | expected if noted[event] != expected[event]} - {"repaired", *but}
    assert not differ, {event: (noted[event], expected[event]) for event in differ}
    return noted


def _check_last(client: Any, keys: QueueKeys, last: dict[str, str]) -> None:
    states = [state for state in STATES if client.zscore(keys.state(state), last["id"]) is not None]
    expected = IS_IN[last["event"]]
    if expected == "garbage" and not states:
        return  # collected
    assert states == ([] if expected == "nothing" else [expected]), last


def _entries(client: Any, keys: QueueKeys) -> Iterator[dict[str, str]]:
    for values in single_events(client, keys.events):
        fields = {_text(name): _text(value) for name, value in values.items()}
        assert list(fields) == FIELDS
        yield fields


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _shards(queue: Any) -> list[QueueKeys]:
    queue.stats()  # this finds out how many shards there are
    return [scripts.keys for scripts in queue._context.shards]
