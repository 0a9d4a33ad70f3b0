from __future__ import annotations

import pytest

from delayq.errors import StaleReceipt
from tests.harness.lua.raw import LEASE, NOW, SERVER_TIME


@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("lease_end", "receipt", "now", "lease", "expected"),
    [
        (NOW + 10, "0.0.0.0-0", NOW, LEASE, NOW + LEASE),
        (NOW + 10.25, "0.0.0.0-250", NOW, LEASE, NOW + LEASE + 0.25),
        (NOW + 10.007, "0.0.0.0-7", NOW + 0.9, LEASE, NOW + LEASE + 0.007),
        (NOW + 10.25, "0.0.0.0-250", NOW, 1, NOW + 1.25),  # a shorter one
        (NOW - 10.75, "0.0.0.0-250", NOW, LEASE, NOW + LEASE + 0.25),  # it has ended, but was not taken back yet
        (NOW + 10, "0.0.0.0-0", NOW, 86_400_000, NOW + 86_400_000),
    ],
)
def test_lease_is_counted_from_now_and_the_receipt_stays_valid(queue, lease_end, receipt, now, lease, expected):
    queue.now = now
    queue.given(unack={"a": lease_end, "b": NOW}, messages={"a": "{}"})
    assert queue.extend("a", receipt, lease) == int(expected)
    assert queue.state() == {"unack": {"a": expected, "b": NOW}, "messages": {"a": "{}"}}
    assert queue.ack([("a", receipt)]) == [1]


def test_extended_lease_is_not_taken_back(queue):
    queue.given(unack={"a": NOW + 1})
    queue.extend("a", "0.0.0.0-0", LEASE)
    queue.now = NOW + LEASE - 1
    assert queue.unack_to_retry() == 0
    queue.now = NOW + LEASE
    assert queue.unack_to_retry() == 1


@pytest.mark.same_on_all_servers
def test_stale_receipt_changes_nothing(queue, stale):
    before = queue.state()
    with pytest.raises(StaleReceipt):
        queue.extend("a", stale, 2 * LEASE)
    assert queue.state() == before


def test_server_time_is_the_default(queue):
    queue.now = SERVER_TIME
    queue.given(unack={"a": NOW})
    before = queue.server_ms()
    assert before + LEASE <= queue.extend("a", "0.0.0.0-0", LEASE) <= queue.server_ms() + LEASE
