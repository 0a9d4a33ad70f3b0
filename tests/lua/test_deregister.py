from __future__ import annotations

from tests.harness.lua.raw import NOW


def test_who_leaves_is_a_consumer_no_longer_and_when_it_was_seen_is_still_known(queue):
    queue.heartbeat("me", "{}")
    assert queue.deregister("me") == 1
    assert queue.consumers().told == []
    assert queue.last_seen() == ("me", NOW)


def test_others_stay(queue):
    queue.given(crew={"me": "a", "other": "b"})
    queue.deregister("me")
    assert queue.state() == {"crew": {"other": "b"}}


def test_times_of_handlers_are_added_to_what_is_counted_also_by_one_that_never_appeared(queue):
    queue.given(stats={"took:0": 2})
    assert queue.deregister("me", {0: 3, 11: 1}) == 0
    assert queue.state() == {"stats": {"took:0": 5, "took:11": 1}}
