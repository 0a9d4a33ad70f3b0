from __future__ import annotations

import time

import pytest

from delayq.errors import LoginRefused
from delayq.protocol.queue_commands import LARGE
from tests.harness.lua.raw import NOW, RUNG, SERVER_TIME, USER, stamped
from tests.harness.waiting import eventually

each_kind_of_id = pytest.mark.parametrize("named", [True, False])


@each_kind_of_id
def test_new_message_waits_in_pending(queue, named):
    assert queue.send([("a", "+5000", b"{}")], named) == [NOW + 5000]
    assert queue.state() == {
        "pending": {"a": NOW + 5000},
        "messages": {"a": stamped("{}")},
        "stats": {"sent": 1},
        "bell": RUNG,
    }


def test_messages_of_a_call_keep_their_order(queue):
    assert queue.send([("c", "+30", b"C"), ("a", "+10", b"A"), ("b", "+20", b"B")]) == [NOW + 30, NOW + 10, NOW + 20]
    assert queue.state() == {
        "pending": {"a": NOW + 10, "b": NOW + 20, "c": NOW + 30},
        "messages": {"a": stamped("A"), "b": stamped("B"), "c": stamped("C")},
        "stats": {"sent": 3},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
def test_due_time_is_never_before_the_requested_one(queue, subtests):
    for now, due, expected in [
        (NOW, "+0", NOW),
        (NOW + 0.25, "+0", NOW),
        (NOW, "+1", NOW + 1),
        (NOW + 0.001, "+1", NOW + 2),
        (NOW + 0.25, "+10", NOW + 11),
        (NOW + 0.999, "+10", NOW + 11),
        (NOW + 0.25, NOW + 10, NOW + 10),
        (NOW, NOW - 10, NOW - 10),
        (NOW, 0, 0),
        (NOW, 253_402_300_799_999, 253_402_300_799_999),
        (NOW, "+253402300799999", NOW + 253_402_300_799_999),
    ]:
        queue.clear()
        with subtests.test(now=now, due=due, expected=expected):
            queue.now = now
            assert queue.send([("a", due, b"{}")]) == [expected]
            assert queue.state()["pending"] == {"a": expected}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("now", "stamp"), [(0, "0000000000000"), (NOW + 0.999, "0000001000000"), (1_790_000_000_000.5, "1790000000000")]
)
def test_envelope_comes_after_13_digits_of_send_time(queue, now, stamp):
    queue.now = now
    queue.send([("a", "+0", b"{}")])
    assert queue.state()["messages"] == {"a": stamp + "{}"}


def test_envelope_is_stored_byte_for_byte(queue):
    envelope = bytes(range(256))
    queue.send([("a", "+0", envelope)])
    assert queue.envelopes(["a"]) == [stamped("").encode() + envelope]


@each_kind_of_id
@pytest.mark.parametrize("setrange", ["+", "-"])
def test_large_envelopes_are_stored_byte_for_byte(queue, named, setrange):
    """The time is written into a large envelope, or, without the right to do that, put in front of it."""
    sizes = [LARGE + 1, 1, LARGE - 12, LARGE, LARGE + 13, LARGE + 14, 3 * LARGE]
    sent = {f"{size}": size * b"0" for size in sizes}
    queue.redis.execute_command("ACL SETUSER", USER, f"{setrange}setrange")
    try:
        queue.send([(each, "+0", envelope) for each, envelope in sent.items()], named)
        queue.send([("lone", "+0", sent[f"{LARGE + 1}"])], named)
    finally:
        queue.redis.execute_command("ACL SETUSER", USER, "+@all")
    assert queue.envelopes(list(sent)) == [stamped("").encode() + envelope for envelope in sent.values()]
    assert queue.envelopes(["lone"]) == [stamped("").encode() + sent[f"{LARGE + 1}"]]
    assert queue.state()["stats"] == {"sent": 8, "large": 2}


@each_kind_of_id
@pytest.mark.parametrize("sizes", [[LARGE + 1], [LARGE + 1, 1], [1, LARGE + 1, LARGE + 1]])
def test_large_envelope_into_which_the_time_cannot_be_written_is_not_sent(queue, named, sizes):
    queue.given(pending={"p": NOW}, messages={"p": "{}"}, stats={"sent": 1, "large": 1})
    before = queue.state()
    queue.redis.execute_command("ACL SETUSER", USER, "-setrange", "-set")
    try:
        with pytest.raises(LoginRefused):
            queue.send([(f"m{i}", "+0", size * b"0") for i, size in enumerate(sizes)], named)
    finally:
        queue.redis.execute_command("ACL SETUSER", USER, "+@all")
    after = queue.state()
    assert (after["pending"], after["stats"].keys()) == (before["pending"], before["stats"].keys())
    assert after["stats"]["sent"] == 1


@pytest.mark.same_on_all_servers
def test_server_counts_the_same_envelopes_as_large(queue):
    queue.send([("a", "+0", LARGE * b"0")])
    assert queue.state()["stats"] == {"sent": 1}
    queue.send([("b", "+0", (LARGE + 1) * b"0")])
    assert queue.state()["stats"] == {"sent": 2, "large": 1}


def test_payload_key_never_expires(queue):
    queue.send([("a", "+0", b"{}")])
    assert queue.redis.pttl(queue.keys.message("a")) == -1


@each_kind_of_id
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_existing_id_is_unchanged(queue, state, named):
    queue.given(messages={"a": "old"}, attempts={"a": "2.1.0.0"}, **{state: {"a": NOW + 7}})
    before = queue.state()
    assert queue.send([("a", "+0", b"new")], named) == [-1]
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_named_id_exists_even_without_its_payload(queue, state):
    queue.given(attempts={"a": "0.1.0.0"}, stats={"sent": 1}, **{state: {"a": NOW + 7}})
    before = queue.state()
    assert queue.send([("a", "+0", b"new")]) == [-1]
    assert queue.state() == before


@each_kind_of_id
def test_payload_without_a_message_is_overwritten(queue, named):
    queue.given(messages={"a": "left by a refused send"})
    assert queue.send([("a", "+0", b"new"), ("b", "+0", b"{}")], named) == [NOW, NOW]
    assert queue.state()["messages"] == {"a": stamped("new"), "b": stamped("{}")}


@pytest.mark.parametrize("ids", ["apb", "a"])
@pytest.mark.parametrize("command", ["exists", "hincrby", "hmget", "mset", "zadd", "time"])
@each_kind_of_id
def test_send_without_a_right_leaves_nothing(queue, command, ids, named):
    queue.given(pending={"p": NOW}, messages={"p": "{}"}, stats={"sent": 1})
    before = queue.state()
    queue.now = SERVER_TIME if command == "time" else NOW
    queue.redis.execute_command("ACL SETUSER", USER, f"-{command}")
    try:
        if named and command == "exists":  # needed for a random id only
            queue.send([("p", "+0", b"{}")], named)
        else:
            with pytest.raises(LoginRefused):
                queue.send([(each, "+0", b"{}") for each in ids], named)
    finally:
        queue.redis.execute_command("ACL SETUSER", USER, "+@all")
    assert eventually(lambda: queue.state() == before, seconds=30), queue.state()


@pytest.mark.same_on_all_servers
@each_kind_of_id
def test_id_in_garbage_is_sent_as_new(queue, named):
    queue.given(garbage={"a": NOW - 1, "b": NOW - 1}, messages={"a": "old", "b": "old"}, stats={"sent": 2})
    assert queue.send([("a", "+10", b"new")], named) == [NOW + 10]
    assert queue.state() == {
        "pending": {"a": NOW + 10},
        "garbage": {"b": NOW - 1},
        "messages": {"a": stamped("new"), "b": "old"},
        "stats": {"sent": 3},
        "bell": RUNG,
    }


@each_kind_of_id
def test_live_message_also_in_garbage_exists_and_keeps_its_payload(queue, named):
    queue.given(pending={"a": NOW + 9}, garbage={"a": NOW - 1}, messages={"a": "old"}, stats={"sent": 1})
    assert queue.send([("a", "+5000", b"{}")], named) == [-1]
    state = queue.state()
    assert (state["pending"], state["messages"]) == ({"a": NOW + 9}, {"a": "old"})
    assert "garbage" not in state


def test_id_in_garbage_without_a_payload_is_sent_as_new(queue):
    queue.given(garbage={"a": NOW - 1})
    assert queue.send([("a", "+10", b"new")]) == [NOW + 10]
    assert queue.state() == {
        "pending": {"a": NOW + 10},
        "messages": {"a": stamped("new")},
        "stats": {"sent": 1},
        "bell": RUNG,
    }


@each_kind_of_id
def test_new_and_existing_ids_share_a_call(queue, named):
    queue.given(pending={"old": NOW + 99}, garbage={"cancelled": NOW - 1}, messages={"old": "old", "cancelled": "old"})
    messages = [("new", "+1", b"N"), ("old", "+2", b"O"), ("cancelled", "+3", b"C"), ("last", "+4", b"L")]
    assert queue.send(messages, named) == [NOW + 1, -1, NOW + 3, NOW + 4]
    assert queue.state() == {
        "pending": {"new": NOW + 1, "cancelled": NOW + 3, "last": NOW + 4, "old": NOW + 99},
        "messages": {"new": stamped("N"), "old": "old", "cancelled": stamped("C"), "last": stamped("L")},
        "stats": {"sent": 3},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
@each_kind_of_id
@pytest.mark.parametrize(
    ("head", "dues", "bell"),
    [
        (None, ["+10"], RUNG),
        (NOW + 11, ["+10"], RUNG),
        (NOW + 10, ["+10"], None),
        (NOW + 9, ["+10"], None),
        (NOW + 9, ["+10", "+8", "+20"], RUNG),
        (NOW - 1, ["+0"], None),
    ],
)
@pytest.mark.parametrize("name", ["a", "m"])
def test_bell_rings_for_a_new_earliest_message(queue, head, dues, bell, named, name):
    """Ids come before and after that of the head: Redis sorts equal scores by them."""
    if head is not None:
        queue.given(pending={"head": head}, messages={"head": "{}"})
    queue.send([(f"{name}{i}", due, b"{}") for i, due in enumerate(dues)], named)
    assert queue.state().get("bell") == bell


def test_bell_never_rings_twice(queue):
    queue.send([("a", "+20", b"{}"), ("b", "+10", b"{}")])
    queue.send([("c", "+5", b"{}")])
    assert queue.state()["bell"] == RUNG


def test_bell_does_not_ring_when_nothing_was_new(queue):
    queue.given(pending={"a": NOW + 99}, messages={"a": "old"})
    queue.send([("a", "+0", b"new")])
    assert "bell" not in queue.state()


@each_kind_of_id
def test_thousand_messages_fit_in_one_call(queue, named):
    dues = queue.send([(f"m{i}", f"+{i}", b"{}") for i in range(1000)], named)
    assert dues == [NOW + i for i in range(1000)]
    after = queue.state()
    assert after["pending"] == {f"m{i}": NOW + i for i in range(1000)}
    assert after["messages"] == {f"m{i}": stamped("{}") for i in range(1000)}
    assert after["stats"] == {"sent": 1000}


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    (due,) = queue.send([("a", "+5000", b"{}")])
    after = queue.server_ms()
    assert before + 5000 <= due <= after + 5001
    assert before <= int(queue.state()["messages"]["a"][:13]) <= after


@pytest.mark.parametrize(("delay", "micros"), [(1, 0), (5, 0), (5, 250), (2500, 999)])
def test_message_is_not_handed_out_before_the_end_of_its_delay(queue, delay, micros):
    queue.now = NOW + micros / 1000
    queue.send([("a", f"+{delay}", b"{}")])
    for early in (0, delay / 2, delay - 0.001):
        queue.now = NOW + micros / 1000 + early
        assert queue.pending_to_ready() == 0
    queue.now = NOW + delay + 1
    assert queue.pending_to_ready() == 1
    assert list(queue.state()["ready"]) == ["a"]


def test_message_is_not_handed_out_before_the_end_of_its_delay_by_the_servers_clock(queue):
    queue.now = SERVER_TIME
    seconds, micros = queue.redis.time()
    queue.send([("a", "+5", b"{}")])
    give_up = time.monotonic() + 120
    while not queue.pending_to_ready() and time.monotonic() < give_up:
        pass
    later_seconds, later_micros = queue.redis.time()
    assert (later_seconds - seconds) * 1_000_000 + later_micros - micros >= 5000
    assert list(queue.state()["ready"]) == ["a"]


@pytest.mark.same_on_all_servers
@each_kind_of_id
def test_one_call_takes_due_times_of_all_kinds(queue, named):
    queue.now = NOW + 0.25
    dues = ["+10", "+10", NOW + 5, "+0", NOW + 5, "+10", "+2", NOW - 7, "+0", "+10"]
    expected = [NOW + 11, NOW + 11, NOW + 5, NOW, NOW + 5, NOW + 11, NOW + 3, NOW - 7, NOW, NOW + 11]
    assert queue.send([(f"m{i}", due, b"%d" % i) for i, due in enumerate(dues)], named) == expected
    assert queue.state() == {
        "pending": {f"m{i}": due for i, due in enumerate(expected)},
        "messages": {f"m{i}": stamped(str(i)) for i in range(len(dues))},
        "stats": {"sent": len(dues)},
        "bell": RUNG,
    }


def test_due_time_of_an_existing_id_does_not_affect_the_next_message(queue):
    """Most messages of a call share a due time, which is computed once; an existing message must not spoil it."""
    queue.given(pending={"old": NOW + 99, "older": NOW + 98}, messages={"old": "old", "older": "older"})
    messages = [("old", "+1", b"O"), ("a", "+1", b"A"), ("older", "+2", b"P"), ("b", "+1", b"B"), ("c", "+2", b"C")]
    assert queue.send(messages) == [-1, NOW + 1, -1, NOW + 1, NOW + 2]
    assert queue.state() == {
        "pending": {"a": NOW + 1, "b": NOW + 1, "c": NOW + 2, "old": NOW + 99, "older": NOW + 98},
        "messages": {"a": stamped("A"), "b": stamped("B"), "c": stamped("C"), "old": "old", "older": "older"},
        "stats": {"sent": 3},
        "bell": RUNG,
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("place", range(4))
@each_kind_of_id
def test_existing_id_can_be_anywhere_among_new_ones(queue, named, place):
    queue.given(unack={"old": NOW + 99}, messages={"old": "old"})
    ids = ["a", "b", "c"]
    ids.insert(place, "old")
    expected = [-1 if each == "old" else NOW + i for i, each in enumerate(ids)]
    assert queue.send([(each, f"+{i}", each.encode()) for i, each in enumerate(ids)], named) == expected
    after = queue.state()
    assert after["pending"] == {each: due for each, due in zip(ids, expected, strict=True) if due >= 0}
    assert after["messages"] == {"old": "old"} | {each: stamped(each) for each in "abc"}
    assert after["stats"] == {"sent": 3}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("dues", "bell"), [(["+5", "+20"], None), (["+20", "+5", "+30"], None), (["+20", "+3"], RUNG)])
def test_bell_rings_only_for_the_earliest_new_message(queue, dues, bell):
    queue.given(pending={"head": NOW + 5, "old": NOW + 99}, messages={"head": "h", "old": "o"})
    queue.send([("old", "+0", b"O"), *((f"m{i}", due, b"{}") for i, due in enumerate(dues))])
    assert queue.state().get("bell") == bell


def test_random_ids_are_not_looked_up_in_the_structures(queue):
    """An id is in a structure, but has no payload. A named id exists; a random id cannot be the same."""
    queue.given(dead={"a": NOW - 1})
    assert queue.send([("b", "+1", b"{}")], named=False) == [NOW + 1]
    assert queue.send([("a", "+1", b"{}"), ("c", "+1", b"{}")], named=True) == [-1, NOW + 1]


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry"])
def test_message_that_a_full_queue_has_no_room_for_is_refused_with_the_limit(queue, state):
    queue.given(meta={"max_length": "2"}, dead={"dead": NOW}, **{state: {"a": NOW}})
    assert queue.send([(id_, "+5", b"{}") for id_ in "abc"]) == [-1, NOW + 5, -3]
    before = queue.state()
    assert queue.send([(id_, "+5", b"{}") for id_ in "cad"]) == [-3, -1, -3]
    assert queue.send_unique([(id_, "+5", b"{}", 1000) for id_ in "cad"]) == [-3, -1, -3]
    assert queue.replace("c", "+5", b"{}") == [-3, 0]
    assert queue.state() == before


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize("stored", ["", "many", "0", "-5", "1.5", "1e0", "0x1", "01", " 1", "1000000000", b"\xff"])
def test_overwritten_max_length_is_ignored(queue, stored):
    queue.given(meta={"max_length": stored})
    assert queue.send([(id_, "+5", b"{}") for id_ in "abc"]) == [NOW + 5] * 3
    assert queue.send_unique([("d", "+5", b"{}", 1000)]) == [NOW + 5]
    assert queue.replace("e", "+5", b"{}") == [NOW + 5, 1]
