"""A server that knows some of the scripts only: the calls of a new client run in their order, on either face."""

from __future__ import annotations

from typing import Any

import pytest

from delayq import Outgoing
from delayq.calls import script
from tests.contract.conftest import Drain, Make


@pytest.fixture
def claims_alone(client: Any) -> None:
    """Let the server know the script that claims, as another client has just used it, and not that which promotes."""
    client.script_flush()
    client.script_load(script("ready_to_unack").text)


@pytest.mark.usefixtures("claims_alone")
def test_what_is_due_is_promoted_before_it_is_claimed(make: Make):
    queue = make()
    queue.send("due")
    assert [message.payload for message in queue.receive()] == ["due"]


@pytest.mark.usefixtures("claims_alone")
def test_burst_ends_when_nothing_is_due(make: Make, drain: Drain):
    queue = make()
    queue.send_many(Outgoing(number) for number in range(3))
    assert drain(queue, lambda _: None) == 3
    assert queue.stats().inside == 0
