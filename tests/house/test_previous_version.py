"""The version before this one works beside this one, on the same queue, both ways."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq import Consumer, Message, Outgoing, Queue, RetryAfter
from delayq.errors import ClientTooOld
from delayq.protocol.script import Script, script
from tests.harness.previous import COMMIT, NoHistory, Previous, archive, installed
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("previous"))


@pytest.fixture
def previous(folder: Path, redis_server: RedisServer) -> Previous:
    return Previous(folder, redis_server.url)


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("jobs", url=redis_server.url) as queue:
        yield queue


def test_checkout_without_the_commit_says_what_to_fetch():
    with pytest.raises(NoHistory, match="git fetch --unshallow"):
        archive(COMMIT[::-1])


CONSUME = """
def handle(message):
    if message.payload == "retry" and message.attempt == 1:
        raise RuntimeError("again")
    if message.payload == "die":
        raise delayq.Reject("unwanted")
    say([message.id, message.payload, message.attempt, message.schedule])

queue = Queue("jobs", backoff=delayq.backoff.fixed(0.01))
while queue.stats().ready + queue.stats().retry or not queue.stats().acked:
    Consumer(queue, handle).drain()
"""


@pytest.mark.full
def test_previous_version_handles_what_this_one_sends(previous: Previous, queue: Queue):
    queue.send_many([Outgoing(n, id=f"m{n}") for n in range(20)])
    queue.send("retry", id="r", headers={"color": "red"}, max_retries=3)
    queue.send("die", id="d")
    queue.send("later", id="l", delay=3600)
    queue.send("moved", id="moved", delay=3600)
    queue.reschedule("moved", delay=0)
    queue.send("old", id="replaced")
    queue.send("new", id="replaced", on_conflict="replace")
    queue.send("cancelled", id="c", delay=3600)
    assert queue.cancel("c") == "cancelled"
    queue.configure(rate="1000/s", concurrency=50)
    handled = {each[0]: each[1:] for each in previous.run(CONSUME)}
    assert handled.pop("r") == ["retry", 2, None]
    assert handled == {f"m{n}": [n, 1, None] for n in range(20)} | {
        "moved": ["moved", 1, None],
        "replaced": ["new", 1, None],
    }
    stats = queue.stats()
    assert (stats.pending, stats.dead, stats.cancelled, stats.missing) == (1, 1, 1, 0)
    (dead,) = queue.dead.list()
    assert dead.reason == "unwanted"


SEND = """
queue = Queue("jobs")
queue.send_many([Outgoing(n, id=f"m{n}") for n in range(20)])
queue.send("retry", id="r", headers={"color": "red"}, max_retries=3)
queue.send("later", id="l", delay=3600)
queue.send("old", id="replaced")
queue.send("new", id="replaced", on_conflict="replace")
say(queue.cancel("nobody"))
queue.configure(rate="1000/s")
"""


def test_this_version_handles_what_the_previous_one_sends(previous: Previous, queue: Queue):
    assert previous.run(SEND) == ["unknown"]
    handled: dict[str, Any] = {}

    def handle(message: Message) -> None:
        if message.payload == "retry" and message.attempt == 1:
            raise RetryAfter(0.01)
        handled[message.id] = (message.payload, message.attempt, dict(message.headers))

    while "r" not in handled:
        Consumer(queue, handle).drain()
    assert handled.pop("r") == ("retry", 2, {"color": "red"})
    assert handled == {f"m{n}": (n, 1, {}) for n in range(20)} | {"replaced": ("new", 1, {})}
    stats = queue.stats()
    assert (stats.pending, stats.missing) == (1, 0)


RUN = """
queue = Queue("jobs")
consumer = Consumer(queue, lambda message: say(message.payload))
consumer.start()
say("started")
sys.stdin.readline()
consumer.stop()
"""


@pytest.mark.full
def test_both_versions_consume_one_queue_and_each_message_is_handled_once(previous: Previous, queue: Queue):
    ours: list[Any] = []
    with previous.start(RUN) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == "started"
        consumer = Consumer(queue, lambda message: ours.append(message.payload))
        consumer.start()
        for start in range(0, 600, 20):
            queue.send_many([Outgoing(n) for n in range(start, start + 20)])
            time.sleep(0.01)
        assert eventually(lambda: queue.stats().acked == 600)
        consumer.stop()
        theirs, _ = process.communicate("\n", timeout=120)
    handled = ours + [json.loads(line) for line in theirs.splitlines()]
    assert sorted(handled) == list(range(600))
    assert queue.stats().missing == 0


@pytest.mark.by_lot(2)
@pytest.mark.full
@pytest.mark.parametrize("by", ["this", "previous"])
@pytest.mark.parametrize("seconds", [1, None])
def test_pause_of_either_version_holds_both_and_ends_for_both(
    previous: Previous, queue: Queue, by: str, seconds: float | None
):
    with previous.start(RUN) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline()) == "started"
        began = time.monotonic()
        if by == "this":
            queue.pause(seconds)
        else:
            previous.run(f"Queue('jobs').pause({seconds})")
        queue.send("x")
        if seconds is None:
            assert queue.receive(wait=0.5) == []
            queue.resume()
        assert json.loads(process.stdout.readline()) == "x"
        assert seconds is None or by == "previous" or time.monotonic() >= began + seconds
        process.communicate("\n", timeout=120)


@pytest.mark.full
@pytest.mark.parametrize("by", ["this", "previous"])
def test_schedule_of_either_version_fires_in_the_other(previous: Previous, queue: Queue, by: str):
    if by == "this":
        queue.schedules.add("often", "every 1s", "tick")
        with previous.start(RUN) as process:
            assert process.stdout is not None
            said = [json.loads(process.stdout.readline()) for _ in range(3)]
            process.communicate("\n", timeout=120)
        assert said == ["started", "tick", "tick"]
        return
    previous.run("Queue('jobs').schedules.add('often', 'every 1s', 'tick')")
    ticks: list[Message] = []
    consumer = Consumer(queue, ticks.append)
    consumer.start()
    assert eventually(lambda: len(ticks) >= 2)
    consumer.stop()
    assert {(message.payload, message.schedule) for message in ticks} == {("tick", "often")}


# -- a feature that a client lacks -----------------------------------------------------------------------------------


@pytest.fixture
def older(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
    """A client whose scripts know no such feature."""
    with Queue("jobs", url=redis_server.url) as queue:
        assemble = Script.__init__

        def lacking(self: Script, name: str) -> None:
            assemble(self, name)
            self.text = re.sub("local NEEDS = {.*}", "local NEEDS = {}", self.text)
            self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

        monkeypatch.setattr(Script, "__init__", lacking)
        script.cache_clear()
        queue.stats()
        yield queue
    monkeypatch.undo()
    script.cache_clear()


def test_client_that_lacks_a_used_feature_names_the_version_at_its_next_call(older: Queue, redis_server: RedisServer):
    older.send("x")
    (message,) = older.receive(wait=1)
    older.send("y")
    with redis_server.client() as client:
        client.hset("delayq:{jobs}:meta", "needs", "1 0.1.0")
    for call in (lambda: older.send("z"), lambda: older.receive(wait=0.1)):
        with pytest.raises(ClientTooOld, match=r"use delayq 0\.1\.0 or newer"):
            call()
    message.ack()


def test_client_that_lacks_packed_entries_settles_what_it_holds_and_its_events_are_noted(
    older: Queue, redis_server: RedisServer
):
    with redis_server.client() as client:
        client.hset("delayq:{jobs}:meta", "events", "1000")
    older.send_many([Outgoing(n, id=f"m{n}") for n in range(10)])
    held = older.receive(10, wait=1)
    with redis_server.client() as client:
        assert client.xlen("delayq:{jobs}:events") == 30
        client.hset("delayq:{jobs}:meta", mapping={"needs": "3 0.1.0", "format": "2"})
    with pytest.raises(ClientTooOld, match=r"use delayq 0\.1\.0 or newer"):
        older.send("z")
    assert all(older.ack(held))
    assert older.events.length() == 40


@pytest.mark.full
def test_ledger_with_packed_entries_stops_the_previous_version(previous: Previous, queue: Queue):
    queue.configure(events=True)
    with previous.start("Queue('jobs').send('y')") as process:
        _, err = process.communicate(timeout=120)
    assert "FormatTooNew" in err or "ClientTooOld" in err
    queue.send_many([Outgoing(n) for n in range(10)])
    assert queue.stats().sent == queue.events.length() == 10


@pytest.mark.full
def test_limit_on_the_length_stops_the_previous_version(previous: Previous, queue: Queue):
    queue.configure(max_length=5)
    with previous.start("Queue('jobs').send('y')") as process:
        _, err = process.communicate(timeout=120)
    assert "FormatTooNew" in err or "ClientTooOld" in err
    assert queue.stats().sent == 0


@pytest.mark.full
def test_queue_whose_data_need_a_later_feature_stops_the_previous_version(
    previous: Previous, queue: Queue, redis_server: RedisServer
):
    """It does not know `needs`, so it is stopped by the format."""
    queue.send("x")
    with redis_server.client() as client:
        client.hset("delayq:{jobs}:meta", mapping={"format": "2", "needs": "1 0.1.0"})
    assert [message.payload for message in queue.receive(wait=1)] == ["x"]
    with previous.start("Queue('jobs').send('y')") as process:
        _, err = process.communicate(timeout=120)
    assert "FormatTooNew" in err
    assert process.returncode not in (0, -signal.SIGKILL)
