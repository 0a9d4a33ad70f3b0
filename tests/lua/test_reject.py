from __future__ import annotations

import pytest

from delayq.errors import StaleReceipt
from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME


def test_rejected_message_is_a_dead_letter_with_its_reason(queue):
    queue.given(unack={"a": NOW + LEASE + 0.25, "b": NOW + LEASE}, messages={"a": "{}"})
    assert queue.reject("a", "0.0.0.0-250", "unwanted", "Reject: unwanted") == NOW
    assert queue.state() == {
        "unack": {"b": NOW + LEASE},
        "dead": {"a": NOW},
        "attempts": {"a": "1.0.0.0"},
        "errors": {"a": "Reject: unwanted"},
        "reasons": {"a": "unwanted"},
        "messages": {"a": "{}"},
        "stats": {"died": 1},
    }


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("counted", "attempts"), [(True, "3.1.1.1"), (False, "2.2.1.1")])
def test_delivery_is_counted_if_it_was_an_attempt(queue, counted, attempts):
    queue.given(unack={"a": NOW + LEASE}, attempts={"a": "2.1.1.1"})
    queue.reject("a", "2.1.1.1-0", "unwanted", counted=counted)
    assert queue.state()["attempts"] == {"a": attempts}


def test_delivery_that_never_started_is_recorded_as_uncounted(queue):
    queue.given(unack={"a": NOW + LEASE})
    queue.reject("a", "0.0.0.0-0", "unreadable", counted=False)
    assert queue.state()["attempts"] == {"a": "0.1.0.0"}


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(("error", "kept"), [("", "old"), ("new", "new"), ("ünï\n☃", "ünï\n☃")])
def test_last_error_is_kept(queue, error, kept):
    queue.given(unack={"a": NOW + LEASE}, errors={"a": "old"})
    queue.reject("a", "0.0.0.0-0", "unwanted", error)
    assert queue.state()["errors"] == {"a": kept}


def test_cancelled_delivery_does_not_become_a_dead_letter(queue):
    queue.given(
        unack={"a": NOW + LEASE},
        attempts={"a": "1.0.0.0", "b": "1.0.0.0"},
        errors={"a": "old", "b": "old"},
        cancelled={"a", "b"},
        messages={"a": "{}"},
    )
    assert queue.reject("a", "1.0.0.0-0", "unwanted", "Reject: unwanted") == -1
    assert queue.state() == {
        "garbage": {"a": NOW},
        "attempts": {"b": "1.0.0.0"},
        "errors": {"b": "old"},
        "cancelled": {"b"},
        "messages": {"a": "{}"},
        "stats": {"cancelled": 1},
    }


def test_expired_lease_can_be_used_until_it_is_taken_back(queue):
    queue.given(unack={"a": NOW - 1})
    assert queue.reject("a", "0.0.0.0-0", "unwanted") == NOW


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    with pytest.raises(StaleReceipt):
        queue.reject("a", stale, "unwanted", "ValueError")
    assert queue.state() == before


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(unack={"a": NOW})
    before = queue.server_ms()
    died = queue.reject("a", "0.0.0.0-0", "unwanted")
    assert before <= died <= queue.server_ms()
    assert queue.state()["dead"] == {"a": died}
