"""What a running consumer survives: the end of the server, its loss of scripts or data, and changed keys."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from delayq import Consumer, Message, Outgoing, Queue, backoff
from delayq.doctor import examine
from delayq.operations import manage
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


@pytest.fixture
def handled() -> list[Message]:
    return []


@pytest.fixture
def queue(own_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=own_server.url, backoff=backoff.fixed(0), lease=2) as queue:
        yield queue


@pytest.fixture
def consumer(queue: Queue, handled: list[Message]) -> Iterator[Consumer]:
    consumer = Consumer(queue, handled.append, concurrency=2)
    consumer.start()
    yield consumer
    consumer.stop(timeout=5)


@pytest.mark.usefixtures("consumer")
def test_consumer_resumes_after_the_server_was_killed(
    own_server: RedisServer, queue: Queue, handled: list[Message]
) -> None:
    sents = queue.send_many([Outgoing(n, delay=0.3) for n in range(100)])
    with capture_logs() as lines:
        own_server.kill()
        assert eventually(lambda: any("redis unavailable" in line["event"] for line in lines))
    own_server.start()
    assert eventually(lambda: {message.id for message in handled} >= {sent.id for sent in sents})
    assert eventually(lambda: queue.stats().inside == 0)
    assert queue.stats().missing == 0


@pytest.mark.usefixtures("consumer")
def test_consumer_survives_script_flush(own_server: RedisServer, queue: Queue, handled: list[Message]) -> None:
    with own_server.client() as client:
        for n in range(5):
            client.script_flush()
            queue.send(n)
            assert eventually(lambda: handled[-1:] != [] and handled[-1].payload == n)  # noqa: B023  # called here


@pytest.mark.usefixtures("consumer")
def test_lost_bell_costs_at_most_the_fallback(own_server: RedisServer, queue: Queue, handled: list[Message]) -> None:
    with own_server.client() as client:
        eventually(lambda: bool(client.client_list()))
        time.sleep(0.2)
        # A message added as a send would, but without the ring.
        sent = queue.send("x", delay=3600)
        time.sleep(0.1)
        client.zadd("delayq:{jobs}:pending", {sent.id: 1})
        client.delete("delayq:{jobs}:bell")
        assert eventually(lambda: len(handled) == 1)


def test_message_without_a_payload_becomes_a_dead_letter(
    queue: Queue, own_server: RedisServer, handled: list[Message]
) -> None:
    sent = queue.send("x")
    with own_server.client() as client:
        client.delete(f"delayq:{{jobs}}:msg:{sent.id}")
    assert Consumer(queue, handled.append).drain() == 0
    (dead,) = queue.dead.list()
    assert (dead.id, dead.reason, dead.attempts, handled) == (sent.id, "payload-missing", 0, [])
    assert queue.stats().missing == 0


@pytest.mark.parametrize("stored", [b"", b"garbage", b"1234567890123", b"1234567890123\x93\x01\x00\xa1x", b"x" * 100])
def test_unreadable_envelope_becomes_a_dead_letter_and_the_next_messages_are_handled(
    queue: Queue, own_server: RedisServer, handled: list[Message], stored: bytes
) -> None:
    sent = queue.send("broken")
    queue.send("fine")
    with own_server.client() as client:
        client.set(f"delayq:{{jobs}}:msg:{sent.id}", stored)
    assert Consumer(queue, handled.append).drain() == 1
    assert [message.payload for message in handled] == ["fine"]
    assert [(dead.id, dead.reason) for dead in queue.dead.list()] == [(sent.id, "unreadable-envelope")]


def test_consumer_that_was_stopped_for_longer_than_its_lease_cannot_settle(own_server: RedisServer) -> None:
    """As after SIGSTOP and SIGCONT: the message has moved on, and the late outcome changes nothing."""
    with Queue("jobs", url=own_server.url) as queue:
        queue.send("x")
        (first,) = queue.receive(lease=0.05)
        time.sleep(0.1)
        (second,) = queue.receive()
        assert (first.attempt, second.attempt) == (1, 2)
        assert queue.ack(first) == [False]
        assert queue.ack(second) == [True]
        assert queue.stats().missing == 0


def test_lone_message_is_not_lost_when_its_consumer_dies_before_settling(own_server: RedisServer) -> None:
    with Queue("jobs", url=own_server.url, lease=0.05, max_retries=2) as queue:
        sent = queue.send("x")
        for attempt in (1, 2, 3):
            (message,) = queue.receive(wait=120)
            assert message.attempt == attempt
            time.sleep(0.06)
        assert queue.receive(wait=0.2) == []
        (dead,) = queue.dead.list()
        assert (dead.id, dead.reason, dead.attempts) == (sent.id, "consumer-lost", 3)


LOST = "queue data lost"


@pytest.mark.parametrize("is_made_again", [False, True])
def test_lost_data_of_a_queue_is_reported_once_by_its_clients_and_by_the_doctor(
    own_server: RedisServer, queue: Queue, is_made_again: bool
) -> None:
    queue.send("lost")
    with capture_logs() as lines, own_server.client() as client:
        client.flushall()
        if is_made_again:
            with Queue("jobs", url=own_server.url) as other:
                other.send("new")
        for _ in range(3):
            queue._context.look_again()  # as happens once a minute
            queue.stats()
    assert [(line["event"], line["log_level"]) for line in lines if "lost" in line["event"]] == [(LOST, "error")]
    with Queue("jobs", url=own_server.url) as other:
        assert [finding.kind for finding in examine(other).errors] == ["lost"]
        assert [finding.kind for finding in examine(other, repair=True).findings if finding.repaired] == ["lost"]
        assert examine(other).healthy


@pytest.mark.parametrize("is_made_again", [False, True])
def test_removed_queue_is_logged_once_and_not_as_a_loss(
    own_server: RedisServer, queue: Queue, is_made_again: bool
) -> None:
    queue.send("x", id="a")
    queue.cancel("a")
    with capture_logs() as lines, Queue("jobs", url=own_server.url) as other:
        assert other.execute(manage.remove) == 0
        if is_made_again:
            other.send("new")
        for _ in range(3):
            queue._context.look_again()  # as happens once a minute
            queue.stats()
    logged = [(line["event"], line["log_level"]) for line in lines]
    assert logged == [("queue removed while in use", "warning")]
    queue.send("another")
    assert examine(queue).healthy


def test_consumer_logs_that_the_server_came_back_without_its_data(
    start_server: StartServer, handled: list[Message]
) -> None:
    server = start_server()  # the server keeps nothing on disk
    with Queue("jobs", url=server.url) as queue, capture_logs() as lines:
        consumer = Consumer(queue, handled.append)
        consumer.start()
        queue.send("handled")
        assert eventually(lambda: handled != [])
        server.kill()
        assert eventually(lambda: any("redis unavailable" in line["event"] for line in lines))
        server.start()
        assert eventually(lambda: any(line["event"] == LOST for line in lines))
        consumer.stop(timeout=5)
    assert [line["event"] for line in lines].count(LOST) == 1


def test_thread_that_asked_before_the_queue_was_recorded_reports_no_loss(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
):
    with Queue("jobs", url=redis_server.url) as queue:
        asking = queue._context.opened()
        reply = queue._executor.run(next(asking))
        queue.send("x")
        with contextlib.suppress(StopIteration):
            asking.send(reply)
        assert not [line for line in caplog.messages if "lost" in line]
        assert examine(queue).healthy
