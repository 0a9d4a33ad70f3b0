from __future__ import annotations

import pytest

from delayq.errors import StaleReceipt
from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME


def test_expired_message_is_counted_and_moved_to_garbage(queue):
    queue.given(
        unack={"a": NOW + LEASE + 0.25, "b": NOW + LEASE},
        attempts={"a": "1.0.0.0", "b": "1.0.0.0"},
        errors={"a": "old", "b": "old"},
        cancelled={"a", "b"},
        messages={"a": "A", "b": "B"},
        stats={"expired": 2},
    )
    assert queue.expire("a", "1.0.0.0-250") == 1
    assert queue.state() == {
        "unack": {"b": NOW + LEASE},
        "garbage": {"a": NOW},
        "attempts": {"b": "1.0.0.0"},
        "errors": {"b": "old"},
        "cancelled": {"b"},
        "messages": {"a": "A", "b": "B"},
        "stats": {"expired": 3},
    }


def test_expired_first_delivery_leaves_only_its_payload(queue):
    queue.given(unack={"a": NOW + LEASE}, messages={"a": "{}"})
    assert queue.expire("a", "0.0.0.0-0") == 1
    assert queue.state() == {"garbage": {"a": NOW}, "messages": {"a": "{}"}, "stats": {"expired": 1}}


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    with pytest.raises(StaleReceipt):
        queue.expire("a", stale)
    assert queue.state() == before


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(unack={"a": NOW})
    before = queue.server_ms()
    queue.expire("a", "0.0.0.0-0")
    assert before <= queue.state()["garbage"]["a"] <= queue.server_ms()
