from __future__ import annotations

import time

import pytest

from tests.lua.raw import NOW, RUNG, SERVER_TIME, stamped

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


@pytest.mark.parametrize(
    ("now", "due", "expected"),
    [
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
    ],
)
def test_due_time_is_never_before_the_one_asked_for(queue, now, due, expected):
    queue.now = now
    assert queue.send([("a", due, b"{}")]) == [expected]
    assert queue.state()["pending"] == {"a": expected}


@pytest.mark.parametrize(
    ("now", "stamp"), [(0, "0000000000000"), (NOW + 0.999, "0000001000000"), (1_790_000_000_000.5, "1790000000000")]
)
def test_envelope_follows_the_time_of_the_send_in_13_digits(queue, now, stamp):
    queue.now = now
    queue.send([("a", "+0", b"{}")])
    assert queue.state()["messages"] == {"a": stamp + "{}"}


def test_envelope_is_stored_byte_by_byte(queue):
    envelope = bytes(range(256))
    queue.send([("a", "+0", envelope)])
    assert queue.envelopes(["a"]) == [stamped("").encode() + envelope]


def test_payload_key_never_runs_out(queue):
    queue.send([("a", "+0", b"{}")])
    assert queue.redis.pttl(queue.keys.message("a")) == -1


@each_kind_of_id
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_id_that_exists_is_left_as_it_is(queue, state, named):
    queue.given(messages={"a": "old"}, attempts={"a": "2.1.0.0"}, **{state: {"a": NOW + 7}})
    before = queue.state()
    assert queue.send([("a", "+0", b"new")], named) == [-1]
    assert queue.state() == before


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead"])
def test_named_id_exists_also_without_its_payload(queue, state):
    queue.given(attempts={"a": "0.1.0.0"}, stats={"sent": 1}, **{state: {"a": NOW + 7}})
    before = queue.state()
    assert queue.send([("a", "+0", b"new")]) == [-1]
    assert queue.state() == before


def test_payload_that_no_structure_holds_is_not_overwritten(queue):
    queue.given(messages={"a": "stray"})
    assert queue.send([("a", "+0", b"new"), ("b", "+0", b"{}")]) == [-1, NOW]
    assert queue.state()["messages"] == {"a": "stray", "b": stamped("{}")}


@each_kind_of_id
def test_garbage_is_sent_anew(queue, named):
    queue.given(garbage={"a": NOW - 1, "b": NOW - 1}, messages={"a": "old", "b": "old"}, stats={"sent": 2})
    assert queue.send([("a", "+10", b"new")], named) == [NOW + 10]
    assert queue.state() == {
        "pending": {"a": NOW + 10},
        "garbage": {"b": NOW - 1},
        "messages": {"a": stamped("new"), "b": "old"},
        "stats": {"sent": 3},
        "bell": RUNG,
    }


def test_garbage_whose_payload_is_gone_is_sent_anew(queue):
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
def test_bell_rings_for_a_message_that_becomes_the_earliest(queue, head, dues, bell):
    if head is not None:
        queue.given(pending={"head": head}, messages={"head": "{}"})
    queue.send([(f"m{i}", due, b"{}") for i, due in enumerate(dues)])
    assert queue.state().get("bell") == bell


def test_bell_never_rings_twice(queue):
    queue.send([("a", "+20", b"{}"), ("b", "+10", b"{}")])
    queue.send([("c", "+5", b"{}")])
    assert queue.state()["bell"] == RUNG


def test_bell_is_silent_when_nothing_was_new(queue):
    queue.given(pending={"a": NOW + 99}, messages={"a": "old"})
    queue.send([("a", "+0", b"new")])
    assert "bell" not in queue.state()


@each_kind_of_id
def test_thousand_messages_fit_a_call(queue, named):
    dues = queue.send([(f"m{i}", f"+{i}", b"{}") for i in range(1000)], named)
    assert dues == [NOW + i for i in range(1000)]
    after = queue.state()
    assert after["pending"] == {f"m{i}": NOW + i for i in range(1000)}
    assert after["messages"] == {f"m{i}": stamped("{}") for i in range(1000)}
    assert after["stats"] == {"sent": 1000}


def test_server_time_counts_by_default(queue):
    queue.now = SERVER_TIME
    before = queue.server_ms()
    (due,) = queue.send([("a", "+5000", b"{}")])
    after = queue.server_ms()
    assert before + 5000 <= due <= after + 5001
    assert before <= int(queue.state()["messages"]["a"][:13]) <= after


def test_message_is_not_handed_out_before_its_delay_is_over(queue):
    queue.now = SERVER_TIME
    seconds, micros = queue.redis.time()
    queue.send([("a", "+5", b"{}")])
    give_up = time.monotonic() + 5
    while not queue.pending_to_ready() and time.monotonic() < give_up:
        pass
    later_seconds, later_micros = queue.redis.time()
    assert (later_seconds - seconds) * 1_000_000 + later_micros - micros >= 5000
    assert list(queue.state()["ready"]) == ["a"]
