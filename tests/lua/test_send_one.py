from __future__ import annotations

from typing import Any

import pytest

from delayq.errors import ClientTooOld, LoginRefused
from delayq.protocol.queue_commands import LARGE
from tests.harness.lua.raw import NOW, SERVER_TIME, USER, stamped
from tests.harness.waiting import eventually


def without_ids(state: dict[str, Any]) -> dict[str, Any]:
    """The state without the ids of the ledger's entries, which are times of the server."""
    state.get("meta", {}).pop("mark", None)
    return state | {"events": [fields for _, fields in state.get("events", ())]}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("due", ["+0", "+1", "+5000", str(NOW - 10), "0", "253402300799999"])
@pytest.mark.parametrize("now", [NOW, NOW + 0.25])
@pytest.mark.parametrize(
    "before",
    [
        {},
        {"pending": {"head": NOW + 1}, "messages": {"head": "{}"}, "stats": {"sent": 1}},
        {"pending": {"head": NOW - 11}, "messages": {"head": "{}"}, "bell": ["1"]},
        {"garbage": {"a": NOW}},
        {"meta": {"events": 1000}},
        {"meta": {"events": 1000, "needs": "3 0.1.0"}, "stats": {"sent": 1}},
    ],
)
def test_it_does_what_send_does(queue, before, now, due):
    outcomes = []
    for name in "send", "send_one":
        queue.clear()
        queue.given(**before)
        queue.now = now
        if name == "send":
            (reply,) = queue.send([("a", due, b"\x00{}")], named=False)
        else:
            reply = queue.send_one("a", due, b"\x00{}")
        outcomes.append((reply, without_ids(queue.state())))
    assert outcomes[0] == outcomes[1]
    assert outcomes[1][1]["messages"]["a"] == stamped("\x00{}")


@pytest.mark.parametrize("setrange", ["+", "-"])
@pytest.mark.parametrize("size", [LARGE, LARGE + 1, 3 * LARGE])
def test_large_envelope_is_stored_byte_for_byte(queue, size, setrange):
    queue.redis.execute_command("ACL SETUSER", USER, f"{setrange}setrange")
    try:
        assert queue.send_one("a", "+0", size * b"0") == NOW
    finally:
        queue.redis.execute_command("ACL SETUSER", USER, "+@all")
    assert queue.envelopes(["a"]) == [stamped("").encode() + size * b"0"]
    assert queue.state()["stats"] == ({"sent": 1} if size == LARGE else {"sent": 1, "large": 1})


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    "state",
    [
        {"meta": {"max_length": 10}},
        {"meta": {"max_length": 10, "events": 1000}},
        {"messages": {"a": "old"}},
        {"messages": {"a": "old"}, "pending": {"a": NOW}, "stats": {"sent": 1}},
        {"messages": {"a": "old"}, "garbage": {"a": NOW}, "stats": {"sent": 9}},
    ],
)
@pytest.mark.parametrize("size", [2, LARGE + 1])
def test_message_that_needs_more_is_left_to_send(queue, state, size):
    queue.given(**{"stats": {"sent": 2}} | state)
    before = queue.state()
    assert queue.send_one("a", "+0", size * b"0") == -1
    after = queue.state()
    after["stats"].pop("large", None)  # it costs claims a look at sizes
    assert after == before


@pytest.mark.same_on_all_servers
def test_client_that_lacks_what_the_queue_needs_is_refused(queue):
    queue.given(meta={"needs": "99 9.9.9"})
    before = queue.state()
    with pytest.raises(ClientTooOld, match=r"9\.9\.9"):
        queue.send_one("a", "+0", b"{}")
    assert queue.state() == before


@pytest.mark.parametrize("size", [2, LARGE + 1])
@pytest.mark.parametrize("command", ["hincrby", "hmget", "set", "zadd", "zrange", "time"])
def test_send_without_a_right_leaves_nothing(queue, command, size):
    def state() -> Any:
        found = queue.state()
        return {**found, "stats": found["stats"]["sent"]}  # a large envelope stays counted, which costs a look at sizes

    queue.given(pending={"p": NOW}, messages={"p": "{}"}, stats={"sent": 1})
    before = state()
    queue.now = SERVER_TIME if command == "time" else NOW
    queue.redis.execute_command("ACL SETUSER", USER, f"-{command}")
    try:
        with pytest.raises(LoginRefused):
            queue.send_one("a", "+0", size * b"0")
    finally:
        queue.redis.execute_command("ACL SETUSER", USER, "+@all")
    assert eventually(lambda: state() == before, seconds=30), queue.state()
