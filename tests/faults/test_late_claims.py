"""A claim that a frozen server runs after its caller has ended hands out nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from delayq import Outgoing, Queue

WAYS = {
    "receive": "[q.receive(10, wait=0), print(flush=True), time.sleep(1.5), q.receive(10, wait=5)]",
    "consumer": "[Consumer(q, lambda m: None).start(), time.sleep(1.2), print(flush=True), time.sleep(99)]",
}
PROGRAM = """
import sys, time
from delayq import Consumer, Queue
q = Queue("jobs", url=sys.argv[1])
{}
"""
MESSAGES = 5


@pytest.mark.full
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("way", WAYS)
def test_claim_that_a_frozen_server_runs_late_costs_no_attempt(
    start_server: Any, way: str, end: signal.Signals
) -> None:
    server = start_server(port=True)
    with Queue("jobs", url=server.url) as queue:
        queue.send("begins")
        command = [sys.executable, "-c", PROGRAM.format(WAYS[way]), server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            before = queue.stats().delivered
            queue.send_many([Outgoing(number, delay=1) for number in range(MESSAGES)])
            time.sleep(0.5)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                time.sleep(1.5)  # it claims meanwhile
                program.send_signal(end)
                time.sleep(3.5)
                program.kill()
                program.wait(60)
            finally:
                os.kill(server.pid, signal.SIGCONT)
        time.sleep(0.5)
        assert queue.stats().delivered == before == 1
        assert [message.attempt for message in queue.receive(MESSAGES)] == [1] * MESSAGES
