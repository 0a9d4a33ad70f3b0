"""A consumer's heartbeat comes once per interval, and ends with the consumer."""

from __future__ import annotations

import threading

import pytest

from delayq.errors import ServerUnreachable
from delayq.runtime.heartbeat import Heartbeat


@pytest.fixture(autouse=True)
def patient_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delayq.runtime.heartbeat.STOP_SECONDS", 60.0)


def test_heartbeats_continue_after_failures_until_stopped():
    beats: list[BaseException | None] = [None, ServerUnreachable("away"), ValueError("a defect"), None]
    is_through = threading.Event()

    def beat() -> None:
        if not beats:
            is_through.set()
            return
        if error := beats.pop():
            raise error

    heartbeat = Heartbeat(beat, 0.001)
    heartbeat.start()
    assert is_through.wait(120)
    heartbeat.stop()
    is_through.clear()
    assert not heartbeat._thread.is_alive()
    assert not is_through.wait(0.05)


def test_stop_waits_for_the_running_heartbeat():
    has_begun, may_end, ended = threading.Event(), threading.Event(), []

    def beat() -> None:
        has_begun.set()
        may_end.wait(120)
        ended.append("beat")

    heartbeat = Heartbeat(beat, 0.001)
    heartbeat.start()
    assert has_begun.wait(120)
    threading.Timer(0.05, may_end.set).start()
    heartbeat.stop()
    assert ended == ["beat"]
