"""A claim that a frozen server runs after its caller has ended hands out nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from delayq import NewRecord, Outgoing, Queue, Topic

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


READER = """
import sys, time
from delayq import Topic, TopicConsumer

def handle(record):
    print(flush=True)
    time.sleep(4)  # its heartbeats learn the server's time

TopicConsumer(Topic("news", url=sys.argv[1]).group("readers", start="0"), handle, name="reader", concurrency=1).run()
"""


@pytest.mark.full
def test_records_that_a_frozen_server_would_hand_to_a_dead_consumer_stay_new(start_server: Any) -> None:
    server = start_server(port=True)
    with Topic("news", url=server.url) as topic:
        topic.publish("begins")
        with subprocess.Popen([sys.executable, "-c", READER, server.url], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            program.stdout.readline()
            time.sleep(3)
            os.kill(server.pid, signal.SIGSTOP)
            publishing = threading.Thread(target=topic.publish_many, args=[[NewRecord(n) for n in range(MESSAGES)]])
            publishing.start()
            try:
                time.sleep(2.5)  # it acks and polls meanwhile
                program.kill()
                program.wait(60)
                time.sleep(3.5)
            finally:
                os.kill(server.pid, signal.SIGCONT)
                publishing.join()
        group = topic.group("readers")
        records = [record for _ in range(10) for record in group.poll("other", wait=0.1)]
        assert [record.deliveries for record in records] == [1] * MESSAGES
