from __future__ import annotations

import pytest

from delayq.errors import ServerError
from tests.harness.lua.raw import NOW, SERVER_TIME


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
    assert not after.keys() - {"pending", "ready", "stats"}  # it does not ring the bell


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


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    hour = 3_600_000
    queue.given(pending={"a": queue.server_ms(), "b": queue.server_ms() + hour})
    assert queue.pending_to_ready() == 1
    assert list(queue.state()["ready"]) == ["a"]


SITUATIONS = {
    "empty": {},
    "not-empty": {"r": NOW - 5},
    "the-same-id": {"m1": NOW - 50},  # as a crash of another program can leave it
}


@pytest.mark.same_on_all_servers
def test_promotion_does_not_depend_on_what_is_ready(queue, subtests):
    for limit in [1, 2, 3, 1000]:
        for ready in SITUATIONS.values():
            queue.clear()
            with subtests.test(ready=ready, limit=limit):
                pending = {"m3": NOW + 1, "m1": NOW - 2, "m2": NOW, "m0": NOW - 0.5, "late": 2 * NOW}
                due = ["m1", "m0", "m2"][:limit]
                queue.given(pending=pending, ready=ready)
                assert queue.pending_to_ready(limit) == len(due)
                assert queue.state() == {
                    "pending": {each: score for each, score in pending.items() if each not in due},
                    "ready": ready | {each: pending[each] for each in due},
                    "stats": {"promoted": len(due)},
                }


def test_any_number_of_messages_is_promoted_with_their_scores(queue, subtests):
    for count in [2, 127, 128, 129, 999]:
        for ready in [{}, {"r": NOW}]:
            queue.clear()
            with subtests.test(ready=ready, count=count):
                pending = {f"m{i}": NOW - i * 0.5 for i in range(count)} | {"x" * 100: NOW}
                queue.given(pending=pending | {"later": NOW + 1}, ready=ready)
                assert queue.pending_to_ready(1000) == count + 1
                assert queue.state() == {
                    "pending": {"later": NOW + 1},
                    "ready": ready | pending,
                    "stats": {"promoted": count + 1},
                }


def test_nothing_due_changes_nothing(queue):
    queue.given(pending={"later": NOW + 1}, ready={"r": NOW})
    before = queue.state()
    assert queue.pending_to_ready() == 0
    assert queue.state() == before


@pytest.mark.same_on_all_servers
def test_key_of_another_type_loses_no_message(queue, subtests):
    for name in ["pending", "ready"]:
        for command in ["SET {} text", "RPUSH {} a", "HSET {} a 1", "SADD {} a", "XADD {} * a 1"]:
            queue.clear()
            with subtests.test(command=command, name=name):
                queue.given(**{each: {"a": NOW, "b": NOW + 1} for each in ("pending", "ready") if each != name})
                queue.redis.execute_command(*command.format(getattr(queue.keys, name)).split())
                before = {key: queue.redis.dump(key) for key in queue.redis.scan_iter()}
                with pytest.raises(ServerError, match="WRONGTYPE"):
                    queue.pending_to_ready()
                assert {key: queue.redis.dump(key) for key in queue.redis.scan_iter()} == before
