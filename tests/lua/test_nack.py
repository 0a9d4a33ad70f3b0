from __future__ import annotations

import pytest

from delayq.errors import StaleReceipt
from tests.harness.lua.raw import LEASE, NOW, RUNG, SERVER_TIME


def test_failed_delivery_waits_in_retry(queue):
    queue.given(unack={"a": NOW + LEASE + 0.25}, messages={"a": "{}"})
    assert queue.nack("a", "0.0.0.0-250", 5000, "ValueError: no") == NOW + 5000
    assert queue.state() == {
        "retry": {"a": NOW + 5000},
        "attempts": {"a": "1.0.0.0"},
        "errors": {"a": "ValueError: no"},
        "messages": {"a": "{}"},
        "stats": {"nacked": 1},
        "bell": RUNG,
    }


def test_nack_raises_only_the_counted_deliveries(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "9.3.2.1"})
    queue.nack("a", "9.3.2.1-0", 0)
    assert queue.state()["attempts"] == {"a": "10.3.2.1"}


def test_free_delivery_is_counted_but_uses_no_retry(queue):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "9.3.2.1"})
    queue.nack("a", "9.3.2.1-0", 0, free=True)
    assert queue.state()["attempts"] == {"a": "10.3.3.1"}


@pytest.mark.parametrize("free", [False, True])
def test_delivery_that_had_not_begun_counts_as_released(queue, free):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "9.3.2.1"})
    queue.nack("a", "9.3.2.1-0", 0, free=free, begun=False)
    assert queue.state()["attempts"] == {"a": "9.4.2.1"}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("error", "kept"), [("", "old"), ("new", "new"), ("ünï\n☃", "ünï\n☃")])
def test_last_error_is_kept(queue, error, kept):
    queue.given(unack={"a": NOW + LEASE}, errors={"a": "old"})
    queue.nack("a", "0.0.0.0-0", 0, error)
    assert queue.state()["errors"] == {"a": kept}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("now", "delay", "due"),
    [
        (NOW, 0, NOW),
        (NOW + 0.25, 0, NOW),
        (NOW, 10, NOW + 10),
        (NOW + 0.001, 10, NOW + 11),
        (NOW + 0.999, 1, NOW + 2),
    ],
)
def test_next_attempt_is_never_before_the_end_of_the_delay(queue, now, delay, due):
    queue.now = now
    queue.given(unack={"a": NOW + LEASE})
    assert queue.nack("a", "0.0.0.0-0", delay) == due
    assert queue.state()["retry"] == {"a": due}


def test_cancelled_delivery_is_not_retried(queue):
    queue.given(
        unack={"a": NOW + LEASE},
        attempts={"a": "1.0.0.0", "b": "1.0.0.0"},
        errors={"a": "old", "b": "old"},
        cancelled={"a", "b"},
        messages={"a": "{}"},
    )
    assert queue.nack("a", "1.0.0.0-0", 5000, "ValueError") == -1
    assert queue.state() == {
        "garbage": {"a": NOW},
        "attempts": {"b": "1.0.0.0"},
        "errors": {"b": "old"},
        "cancelled": {"b"},
        "messages": {"a": "{}"},
        "stats": {"nacked": 1, "cancelled": 1},
    }


def test_expired_lease_can_be_used_until_it_is_taken_back(queue):
    queue.given(unack={"a": NOW - 1})
    assert queue.nack("a", "0.0.0.0-0", 0) == NOW


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("head", "bell"), [(None, RUNG), (NOW + 11, RUNG), (NOW + 10, None), (NOW + 9, None), (NOW - 1, None)]
)
def test_bell_rings_for_a_new_earliest_retry(queue, head, bell):
    queue.given(unack={"a": NOW + LEASE}, retry={} if head is None else {"head": head})
    queue.nack("a", "0.0.0.0-0", 10)
    assert queue.state().get("bell") == bell


def test_bell_never_rings_twice(queue):
    queue.given(unack={"a": NOW + LEASE}, bell=RUNG)
    queue.nack("a", "0.0.0.0-0", 0)
    assert queue.state()["bell"] == RUNG


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    with pytest.raises(StaleReceipt):
        queue.nack("a", stale, 1000, "ValueError")
    assert queue.state() == before


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(unack={"a": NOW})
    before = queue.server_ms()
    due = queue.nack("a", "0.0.0.0-0", 5000)
    assert before + 5000 <= due <= queue.server_ms() + 5001


def test_delivery_that_did_not_begin_is_taken_off_the_rate(queue):
    queue.given(unack={"a": NOW + LEASE}, rate={"1": NOW * 1000, "2": NOW * 1000 + 5})
    queue.nack("a", "0.0.0.0-0", 0, begun=False, handed_us=NOW * 1000)
    assert queue.state()["rate"] == {"2": NOW * 1000 + 5}
