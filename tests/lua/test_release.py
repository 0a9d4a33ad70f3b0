from __future__ import annotations

import pytest

from delayq.errors import StaleReceipt
from tests.harness.lua.raw import LEASE, NOW, RUNG, SERVER_TIME


def test_unstarted_message_is_ready_again_and_uses_no_retry(queue):
    queue.given(unack={"a": NOW + LEASE + 0.25}, messages={"a": "{}"})
    assert queue.release("a", "0.0.0.0-250", NOW - 7) == 1
    assert queue.state() == {
        "ready": {"a": NOW - 7},
        "attempts": {"a": "0.1.0.0"},
        "messages": {"a": "{}"},
        "stats": {"released": 1},
        "bell": RUNG,
    }


def test_release_raises_only_the_uncounted_deliveries(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "3.9.2.1"}, errors={"a": "old"})
    queue.release("a", "3.9.2.1-0", NOW)
    after = queue.state()
    assert after["attempts"] == {"a": "3.10.2.1"}
    assert after["errors"] == {"a": "old"}


def test_started_delivery_raises_the_attempt_number_but_uses_no_retry(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "3.9.2.1"})
    queue.release("a", "3.9.2.1-0", NOW, begun=True)
    assert queue.state()["attempts"] == {"a": "4.9.3.1"}


@pytest.mark.parametrize(("due", "place"), [(NOW - 7, NOW - 7), (NOW, NOW), (NOW + 7, NOW), (0, 0)])
def test_message_keeps_its_place_but_is_due_no_later_than_now(queue, due, place):
    queue.given(unack={"a": NOW + LEASE})
    queue.release("a", "0.0.0.0-0", due)
    assert queue.state()["ready"] == {"a": place}


def test_cancelled_delivery_is_not_released(queue):
    queue.given(
        unack={"a": NOW + LEASE},
        attempts={"a": "1.0.0.0", "b": "1.0.0.0"},
        errors={"a": "old", "b": "old"},
        cancelled={"a", "b"},
        messages={"a": "{}"},
    )
    assert queue.release("a", "1.0.0.0-0", NOW) == 0
    assert queue.state() == {
        "garbage": {"a": NOW},
        "attempts": {"b": "1.0.0.0"},
        "errors": {"b": "old"},
        "cancelled": {"b"},
        "messages": {"a": "{}"},
        "stats": {"released": 1, "cancelled": 1},
    }


def test_expired_lease_can_be_used_until_it_is_taken_back(queue):
    queue.given(unack={"a": NOW - 1})
    assert queue.release("a", "0.0.0.0-0", NOW) == 1


def test_bell_rings_even_behind_an_earlier_message_but_never_twice(queue):
    queue.given(unack={"a": NOW + LEASE, "b": NOW + LEASE}, ready={"c": NOW - 9})
    queue.release("a", "0.0.0.0-0", NOW)
    assert queue.state()["bell"] == RUNG
    queue.release("b", "0.0.0.0-0", NOW)
    assert queue.state()["bell"] == RUNG


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    with pytest.raises(StaleReceipt):
        queue.release("a", stale, NOW)
    assert queue.state() == before


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(unack={"a": NOW})
    before = queue.server_ms()
    queue.release("a", "0.0.0.0-0", before + 3_600_000)
    assert before <= queue.state()["ready"]["a"] <= queue.server_ms()
