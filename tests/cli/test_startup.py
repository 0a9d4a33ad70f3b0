"""Waiting for a server leaves no signal handler behind: it would decide about the exit code later."""

from __future__ import annotations

import os
import signal

import pytest
from delayq.cli.consume.startup import when_served

from delayq import ServerUnreachable
from delayq.model.outage import Outage


def test_signal_ends_the_wait_only(monkeypatch: pytest.MonkeyPatch):
    lost = Outage.lost
    monkeypatch.setattr(Outage, "lost", lambda *given: 0 * lost(*given))
    before = signal.getsignal(signal.SIGTERM)
    calls: list[object] = []

    def run() -> object:
        calls.append(signal.getsignal(signal.SIGTERM))
        if len(calls) == 1:
            raise ServerUnreachable("away")
        return "run"

    assert when_served(run, lambda: None, waits=True) == "run"
    assert [*calls, signal.getsignal(signal.SIGTERM)] == [before] * 3
    calls.clear()
    with pytest.raises(SystemExit) as exited:
        when_served(run, lambda: os.kill(os.getpid(), signal.SIGTERM), waits=True)
    assert exited.value.code == 0
