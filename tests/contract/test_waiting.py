from __future__ import annotations

import time

import pytest

from tests.contract.conftest import Make

pytestmark = pytest.mark.timeout(10)


def test_receive_waits_for_a_message(make: Make):
    queue = make("real-time", clock=str)
    queue.send("x", delay=0.15)
    started = time.monotonic()
    (message,) = queue.receive(wait=5)
    assert 0.14 < time.monotonic() - started < 2
    assert 0 <= message.lateness < 1


def test_receive_waits_no_longer_than_it_is_told(make: Make):
    queue = make("real-time", clock=str)
    started = time.monotonic()
    assert queue.receive(wait=0.1) == []
    assert 0.1 <= time.monotonic() - started < 1
