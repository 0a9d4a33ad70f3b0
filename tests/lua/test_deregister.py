from __future__ import annotations

from tests.harness.lua.raw import NOW


def test_consumer_that_leaves_is_removed_but_still_counts_as_last_seen(queue):
    queue.heartbeat("me", "{}")
    assert queue.deregister("me") == 1
    assert queue.consumers().reports == []
    assert queue.last_seen() == ("me", NOW)


def test_other_consumers_stay(queue):
    queue.given(reports={"me": "a", "other": "b"})
    queue.deregister("me")
    assert queue.state() == {"crew": {"other": "b"}}


def test_handler_times_are_added_even_for_an_unknown_consumer(queue):
    queue.given(stats={"took:0": 2})
    assert queue.deregister("me", {"took:0": 3, "took:11": 1}) == 0
    assert queue.state() == {"stats": {"took:0": 5, "took:11": 1}}
