from __future__ import annotations

from typing import Any

import pytest

from tests.harness.lua.raw import NOW, stamped

TEAM = {
    "members": {"a": "team", "b": "team", "last": f"\0w 2 {NOW} +5 team"},
    "groups": {"team": f"w 2 2 0 {NOW} 0 +5 last"},
    "rosters": {"team": "a\nb"},
    "meta": {"needs": "5 0.1.0", "format": "2"},
}
MESSAGES = [("last", "+5", b"L"), ("a", "+0", b"A"), ("b", str(NOW + 9), b"B")]


def send(queue: Any, messages: Any = MESSAGES, waits: bool = True, **options: Any) -> Any:
    return queue.send_group("team", "w", messages, waits, **options)


def test_members_wait_in_pending_and_the_last_message_is_held(queue):
    assert send(queue) == [NOW, NOW + 9]
    assert queue.state() == TEAM | {
        "pending": {"a": NOW, "b": NOW + 9},
        "held": {"last": NOW},
        "messages": {"last": stamped("L"), "a": stamped("A"), "b": stamped("B")},
        "stats": {"sent": 3},
        "bell": ["1"],
    }


def test_group_without_members_has_ended(queue):
    assert send(queue, MESSAGES[:1]) == []
    state = queue.state()
    assert state["pending"] == {"last": NOW + 5}
    assert state["groups"] == {"team": f"w 0 0 0 {NOW} {NOW} +5 last"}
    assert "held" not in state


def test_group_that_exists_is_left_as_it_is(queue):
    send(queue)
    before = queue.state()
    assert send(queue, [("c", "+0", b"C")], waits=False) == [-1]
    assert queue.state() == before


@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry", "dead", "held"])
@pytest.mark.parametrize("taken", ["last", "b"])
def test_id_that_exists_stops_the_whole_group(queue, state, taken):
    queue.given(messages={taken: "{}"}, **{state: {taken: NOW}})
    before = queue.state()
    assert send(queue) == [-2, taken.encode()]
    assert send(queue, named=False) == [-2, taken.encode()]
    assert queue.state() == before


def test_garbage_is_sent_again(queue):
    queue.given(garbage={"a": NOW - 1}, messages={"a": "old"})
    assert send(queue) == [NOW, NOW + 9]
    assert "garbage" not in queue.state()


@pytest.mark.parametrize(("most", "fits"), [(3, False), (4, True)])
def test_group_that_exceeds_max_length_is_refused(queue, most, fits):
    queue.given(meta={"max_length": most}, held={"other": NOW}, messages={"other": "{}"})
    before = queue.state()
    assert send(queue) == ([NOW, NOW + 9] if fits else [-3, str(most).encode()])
    assert (queue.state() == before) is not fits


def test_thousand_members_are_sent_in_one_call(queue):
    assert len(send(queue, [("last", "+0", b"L"), *((f"m{i}", "+0", b"M") for i in range(1000))])) == 1000
    state = queue.state()
    assert (len(state["pending"]), len(state["members"])) == (1000, 1001)


ENDINGS = {
    "cancel": lambda queue: queue.cancel("a"),
    "bury": lambda queue: queue.bury("a", "unwanted"),
    "purge": lambda queue: queue.purge("pending", "+inf", 10),
    "replace": lambda queue: queue.replace("a", "+0", b"A"),
}


@pytest.mark.parametrize("end", ENDINGS.values(), ids=ENDINGS)
def test_delay_after_the_last_member_is_never_cut_short(queue, end):
    queue.send_group("team", "c", [("last", "+5", b"L"), ("a", "+0", b"A")], True)
    queue.now = NOW + 0.25
    end(queue)
    assert queue.state()["pending"]["last"] == NOW + 6


def test_ledger_says_when_the_message_of_an_empty_group_is_due(queue):
    queue.given(meta={"events": 100})
    send(queue, MESSAGES[:1])
    ((_, fields),) = queue.state()["events"]
    assert fields["due"] == str(NOW + 5)
