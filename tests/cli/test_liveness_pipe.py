"""A supervisor hears whether its processes are alive."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from delayq.cli.consume import liveness_pipe
from delayq.cli.consume.liveness_pipe import HeartbeatSender, LivenessPipe

CHILD = """
import sys
from delayq.cli.consume.liveness_pipe import HeartbeatSender
beating = HeartbeatSender()
for line in sys.stdin:
    beating.beat()
    print("beaten", flush=True)
"""


NOW = [0.0]


@pytest.fixture
def listening() -> Iterator[LivenessPipe]:
    NOW[0] = 0.0
    listening = LivenessPipe(lambda: NOW[0])
    yield listening
    listening.close()


def test_heartbeat_of_the_child_ends_the_silence(listening: LivenessPipe):
    environment = {**os.environ, liveness_pipe.ENV: str(listening.child)}
    words = [sys.executable, "-c", CHILD]
    with subprocess.Popen(
        words, env=environment, pass_fds=[listening.child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        os.close(listening.child)
        assert child.stdin is not None
        assert child.stdout is not None
        NOW[0] = 5.0
        assert listening.silence() == 5
        child.stdin.write("beat\n")
        child.stdin.flush()
        assert child.stdout.readline() == "beaten\n"
        assert listening.silence() == 0
        child.stdin.close()
    NOW[0] = 8.0
    assert listening.silence() == 3


def test_unread_heartbeats_do_not_block(monkeypatch: pytest.MonkeyPatch, listening: LivenessPipe):
    monkeypatch.setenv(liveness_pipe.ENV, str(listening.child))
    beating = HeartbeatSender()
    assert liveness_pipe.ENV not in os.environ
    for _ in range(2 * liveness_pipe.MANY):
        beating.beat()
    os.close(listening.child)
    NOW[0] = 9.0
    assert listening.silence() == 0


def test_heartbeat_without_a_supervisor_does_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(liveness_pipe.ENV, raising=False)
    HeartbeatSender().beat()
    assert liveness_pipe.ENV not in os.environ


def test_supervisor_hears_how_its_process_is_and_can_retire_it(
    monkeypatch: pytest.MonkeyPatch, listening: LivenessPipe
):
    monkeypatch.setenv(liveness_pipe.ENV, str(listening.child))
    child = HeartbeatSender()
    for state in (liveness_pipe.STARTING, liveness_pipe.RUNNING, liveness_pipe.WORN):
        child.beat(state)
        listening.silence()
        assert listening.state == state
    assert not child.is_retired(0)
    listening.retire()
    assert child.is_retired(60)
    listening.close()
    assert not child.is_retired(0)
    assert not child.is_retired(0)
    os.close(listening.child)


@pytest.mark.usefixtures("many_open_files")
def test_process_with_many_open_files_can_be_retired(monkeypatch: pytest.MonkeyPatch):
    listening = LivenessPipe()
    monkeypatch.setenv(liveness_pipe.ENV, str(listening.child))
    child = HeartbeatSender()
    assert not child.is_retired(0)
    listening.retire()
    assert child.is_retired(60)
    listening.close()
    os.close(listening.child)
