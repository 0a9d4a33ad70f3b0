from __future__ import annotations

import pytest

from tests.lua.raw import NOW, SERVER_TIME


@pytest.mark.parametrize(
    ("pending", "now", "limit", "promoted"),
    [
        ({}, NOW, 10, []),
        ({"a": NOW}, NOW, 10, ["a"]),
        ({"a": NOW + 1}, NOW, 10, []),
        ({"a": NOW}, NOW - 1, 10, []),
        ({"a": NOW}, NOW - 0.001, 10, []),
        ({"a": NOW}, NOW + 0.999, 10, ["a"]),
        ({"a": NOW + 1}, NOW + 0.999, 10, []),
        ({"a": 0}, NOW, 10, ["a"]),
        ({"a": NOW - 1, "b": NOW - 2, "c": NOW + 1}, NOW, 10, ["a", "b"]),
        ({"a": NOW - 1, "b": NOW - 3, "c": NOW - 2}, NOW, 2, ["b", "c"]),
        ({"a": NOW, "b": NOW, "c": NOW}, NOW, 2, ["a", "b"]),
    ],
)
def test_due_messages_are_promoted_earliest_first_and_never_early(queue, pending, now, limit, promoted):
    queue.given(pending=pending)
    queue.now = now
    assert queue.pending_to_ready(limit) == len(promoted)
    after = queue.state()
    assert after.get("ready", {}) == {message_id: pending[message_id] for message_id in promoted}
    assert after.get("pending", {}) == {each: due for each, due in pending.items() if each not in promoted}
    assert after.get("stats", {}) == ({"promoted": len(promoted)} if promoted else {})
    assert not after.keys() - {"pending", "ready", "stats"}  # it does not ring


def test_ready_messages_stay_and_counts_add_up(queue):
    queue.given(ready={"r": NOW - 5}, pending={"a": NOW}, stats={"promoted": 7})
    assert queue.pending_to_ready() == 1
    assert queue.state() == {"ready": {"r": NOW - 5, "a": NOW}, "stats": {"promoted": 8}}


def test_call_is_bounded_by_its_limit(queue):
    queue.given(pending={f"m{i}": NOW - i for i in range(1001)})
    assert queue.pending_to_ready(1000) == 1000
    assert queue.state()["pending"] == {"m0": NOW}
    assert queue.pending_to_ready(1000) == 1
    assert queue.state()["ready"] == {f"m{i}": NOW - i for i in range(1001)}
    assert queue.pending_to_ready(1000) == 0


def test_server_time_counts_by_default(queue):
    queue.now = SERVER_TIME
    hour = 3_600_000
    queue.given(pending={"a": queue.server_ms(), "b": queue.server_ms() + hour})
    assert queue.pending_to_ready() == 1
    assert list(queue.state()["ready"]) == ["a"]
