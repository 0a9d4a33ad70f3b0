"""The ledger of a random program must agree with the model's counters and with where each message is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import redis

from delayq.protocol.queue_keys import QueueKeys
from tests.harness.ledgers import events_in
from tests.harness.model.held import Held
from tests.harness.model.model import Model

# Where a message is after an event, and whether the event names its due time.
LEAVES_IN = {
    "sent": ("pending", True),
    "replaced": ("pending", True),
    "rescheduled": ("pending", True),
    "requeued": ("pending", True),
    "promoted": ("ready", True),
    "released": ("ready", False),
    "delivered": ("unack", False),
    "nacked": ("retry", True),
    "lease_lost": ("retry", True),
    "died": ("dead", False),
    "cancelled": ("garbage", False),
    "expired": ("garbage", False),
    "held_back": ("pending", False),
    "purged": ("garbage", False),
    "acked": ("nothing", False),
}


class Ledger:
    """Reads the new entries of each shard since the last read."""

    def __init__(self, client: redis.Redis, shards: Sequence[QueueKeys]) -> None:
        self._client: Any = client
        self._seen = {keys.events: "-" for keys in shards}
        self._counted: Counter[str] = Counter()
        self._last: dict[str, dict[str, str]] = {}

    def check(self, model: Model) -> None:
        for key, (entry, fields) in self._entries():
            self._seen[key] = "(" + entry.decode()
            for _, words in events_in(entry, fields):
                names, texts = ([word.decode() for word in part] for part in (words[::2], words[1::2]))
                values = dict(zip(names, texts, strict=True))
                self._counted[values["event"]] += 1
                self._last[values["id"]] = values
                if values["late"]:
                    assert int(values["late"]) == int(values["at"]) - int(values["due"])
        counted = {name: model.counters[name] for name in LEAVES_IN}
        counted["released"] -= counted["held_back"]  # which has its own event
        assert dict(+self._counted) == {name: count for name, count in counted.items() if count}
        for message_id, last in self._last.items():
            self._check_last(last, model.messages.get(message_id))

    def _entries(self) -> list[tuple[str, Any]]:
        return [(key, each) for key, seen in self._seen.items() for each in self._client.xrange(key, seen)]

    def _check_last(self, last: dict[str, str], held: Held | None) -> None:
        state, tells_due = LEAVES_IN[last["event"]]
        if state == "garbage" and held is None:
            return  # collected
        if last["event"] == "sent" and not last["due"]:  # it waits for a group, or did so
            assert (held.state if held else "nothing") in ("held", "pending"), last
            return
        assert (held.state if held else "nothing") == state, last
        if held is None:
            return
        if tells_due:
            assert int(last["due"]) == held.score, last
        if state == "unack":
            assert int(last["attempt"]) == held.past + 1, last
