"""A claim that a frozen server runs after its caller has ended hands out nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from delayq import NewRecord, Outgoing, Queue, Topic
from delayq.operations.topics import settle
from delayq.protocol.command import Command
from delayq.protocol.operation import execute
from delayq.protocol.topic_commands import ANY_MARK, TopicCommands
from tests.harness.servers import RedisServer

WAYS = {
    "receive": "[q.receive(10, wait=0), print(flush=True), time.sleep(2.5), q.receive(10, wait=5)]",
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
            queue.send_many([Outgoing(number, delay=3) for number in range(MESSAGES)])
            time.sleep(0.5)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                time.sleep(3.5)  # it claims meanwhile
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
    time.sleep(5)  # its heartbeats learn the server's time

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
                time.sleep(3.5)  # it acks and polls meanwhile
                program.kill()
                program.wait(60)
                time.sleep(3.5)
            finally:
                os.kill(server.pid, signal.SIGCONT)
                publishing.join()
        group = topic.group("readers")
        records = [record for _ in range(10) for record in group.poll("other", wait=0.1)]
        assert [record.deliveries for record in records] == [1] * MESSAGES


RETRYING = """
import sys
from delayq import Topic, TopicConsumer, backoff

def handle(record):
    print(flush=True)
    raise ValueError("not yet")

group = Topic("news", url=sys.argv[1]).group("readers", start="0")
TopicConsumer(group, handle, name="reader", backoff=backoff.fixed(3)).run()
"""


@pytest.mark.full
def test_retry_that_a_frozen_server_runs_for_a_dead_consumer_costs_no_delivery(start_server: Any) -> None:
    server = start_server(port=True)
    with Topic("news", url=server.url) as topic:
        topic.publish("x")
        with subprocess.Popen([sys.executable, "-c", RETRYING, server.url], stdout=subprocess.PIPE) as program:
            assert program.stdout is not None
            for _ in range(2):  # from then on, the server knows the script
                program.stdout.readline()
            time.sleep(1)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                time.sleep(3)  # it asks for the record again meanwhile
                program.kill()
                program.wait(60)
                time.sleep(3.5)
            finally:
                os.kill(server.pid, signal.SIGCONT)
        (record,) = topic.group("readers").unacked()
        assert record.deliveries == 2


COUNTED: dict[str, Callable[[TopicCommands, list[str]], Command[Any]]] = {
    "poll": lambda calls, _: calls.poll("readers", "dead", 9, by_ms=1),
    "redeliver": lambda calls, ids: calls.redeliver("readers", "dead", ids, True, ANY_MARK, by_ms=1),
    "reclaim": lambda calls, _: calls.reclaim("readers", "dead", 0, "", 9, 2, is_member=True, until_ms=1),
}


@pytest.mark.parametrize("name", COUNTED)
def test_late_call_neither_hands_out_nor_buries_a_record(redis_server: RedisServer, name: str) -> None:
    with Topic("news", url=redis_server.url) as topic:
        group = topic.group("readers", start="0")
        ids = [topic.publish(number).id for number in range(3)]
        group.poll("dead", 2)
        time.sleep(0.01)
        topic.execute(settle.redeliver, "readers", "dead", topic.range(count=1), True)  # the most for `reclaim`
        (calls,) = topic._context.shards
        topic.execute(lambda _: execute(calls.reclaim("readers", "dead", 10**6, "", 9, 2, is_member=True)))
        before = [(each.id, each.deliveries) for each in group.unacked()]
        topic.execute(lambda _: execute(COUNTED[name](calls, ids[:2])))
        after = [(each.id, each.deliveries) for each in group.unacked()]
        assert after == before == [(ids[0], 2), (ids[1], 1)]
        assert not group.dead()
