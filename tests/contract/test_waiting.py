from __future__ import annotations

import datetime as dt
import time

from tests.contract.conftest import Make


def test_receive_waits_for_a_message(make: Make):
    queue = make("real-time", clock=str)
    sent = queue.send("x", delay=0.15)
    (message,) = queue.receive(wait=30)
    assert message.id == sent.id
    assert dt.datetime.now(dt.UTC) >= sent.due_at


def test_receive_waits_no_longer_than_it_is_told(make: Make):
    queue = make("real-time", clock=str)
    started = time.monotonic()
    assert queue.receive(wait=0.1) == []
    assert time.monotonic() - started >= 0.1
