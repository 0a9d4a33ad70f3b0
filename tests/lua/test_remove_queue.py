from __future__ import annotations

import pytest

from tests.harness.lua.raw import NOW

KEPT = {
    "stats": {"sent": 3, "acked": 3},
    "schedules": {"nightly": "{}"},
    "armed": {"nightly": NOW},
    "attempts": {"stray": "1.0.0.0"},
    "meta": {"format": "1", "shards": "1", "paused": NOW, "events": 9},
}


def test_empty_queue_is_removed_with_everything_kept_about_it(queue):
    queue.given(**KEPT)
    queue.ring()
    assert queue.remove_queue() == 0
    assert queue.state() == {"removed": "1"}
    assert 0 < queue.redis.pttl(queue.keys.removed) <= 180_000


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead", "garbage"])
def test_queue_that_holds_a_message_is_unchanged(queue, state):
    queue.given(**KEPT, **{state: {"a": NOW, "b": NOW}}, messages={"a": "A", "b": "B"})
    before = queue.state()
    assert queue.remove_queue() == 2
    assert queue.state() == before


def test_missing_queue_is_not_an_error(queue):
    assert queue.remove_queue() == 0
    assert queue.state() == {}
