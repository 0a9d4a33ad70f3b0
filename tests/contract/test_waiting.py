from __future__ import annotations

import datetime as dt
import time
from collections import Counter
from collections.abc import Sequence
from unittest.mock import ANY

import pytest

from delayq import Outgoing, Queue
from delayq.runtime import receive_wait, receive_wait_async
from tests.contract.conftest import Make, Now


def test_receive_waits_for_a_message(make: Make):
    queue = make("real-time", clock=str)
    sent = queue.send("x", delay=0.15)
    (message,) = queue.receive(wait=30)
    assert message.id == sent.id
    assert dt.datetime.now(dt.UTC) >= sent.due_at


def test_receive_wakes_at_the_end_of_a_pause(make: Make, monkeypatch: pytest.MonkeyPatch):
    for module in (receive_wait, receive_wait_async):  # so that nothing else wakes it
        monkeypatch.setattr(module, "FALLBACK_MS", 60_000)
    queue = make("real-time", clock=str)
    queue.send("x")
    paused_at = dt.datetime.now(dt.UTC)
    queue.pause(0.3)  # each shard counts from when it gets the call
    (message,) = queue.receive(wait=25)
    assert message.payload == "x"
    assert dt.datetime.now(dt.UTC) >= paused_at + dt.timedelta(milliseconds=299)  # the server drops microseconds
    assert message.lateness < 20  # otherwise the end of the wait has woken it


def test_receive_waits_no_longer_than_asked(make: Make):
    queue = make("real-time", clock=str)
    started = time.monotonic()
    assert queue.receive(wait=0.1) == []
    assert time.monotonic() - started >= 0.1


def test_receive_deletes_one_page_of_payloads_per_call(make: Make):
    queue = make(shards=1)
    for sent in queue.send_many([Outgoing("x", delay=60)] * 501):
        queue.cancel(sent.id)
    collected = []
    for _ in range(2):
        assert queue.receive() == []
        collected.append(queue.stats().collected)
    assert collected == [500, 501]


def test_failing_upkeep_does_not_keep_messages_from_a_receiver(make: Make):
    queue = make()
    for number in range(3):
        queue.send(number, delay=60, id=f"cancelled-{number}")
        queue.cancel(f"cancelled-{number}")
    queue.send("x")
    (message,) = queue.receive()
    assert (message.payload, queue.stats().collected) == ("x", 3)


def test_receive_purges_old_dead_letters(make: Make, now: Now):
    make().send("x")
    make().receive()[0].reject("why")
    now.later(61)
    make(dead_retention=62).receive()
    assert make().stats().dead == 1
    make(dead_retention=60).receive()
    assert make().stats().dead == 0


def die(queue: Queue, ids: Sequence[str], now: Now) -> None:
    for id_ in ids:
        queue.send("x", id=id_)
        queue.receive()[0].reject("why")
        now.later(1)


def test_receive_purges_the_oldest_dead_letters_over_the_limit(make: Make, now: Now):
    queue = make(shards=1, dead_retention=None)
    die(queue, ["a", "b", "c", "d"], now)
    queue.configure(max_dead=2)
    make(shards=1, dead_retention=None).receive()
    assert [each.id for each in queue.dead.list()] == ["c", "d"]
    assert (queue.stats().purged, queue.stats().missing) == (2, 0)
    queue.configure(max_dead=None)
    die(queue, ["e"], now)
    make(shards=1, dead_retention=None).receive()
    assert [each.id for each in queue.dead.list()] == ["c", "d", "e"]


def test_each_shard_keeps_its_share_of_the_dead_letters(make: Make, now: Now):
    queue = make("spread", shards=2)
    die(queue, [f"{number}" for number in range(12)], now)
    queue.configure(max_dead=6)
    make("spread", shards=2).receive()
    shard_of = queue._context.shard
    assert Counter(id(shard_of(each.id)) for each in queue.dead.list()).most_common() == [(ANY, 3), (ANY, 3)]


def test_raising_the_limit_of_dead_letters_takes_effect_at_once(make: Make, now: Now):
    operator, receiver = make(shards=1), make(shards=1)
    operator.configure(max_dead=1)
    die(operator, ["a", "b", "c"], now)
    receiver.stats()  # so that it has read the configuration
    operator.configure(max_dead=3)
    receiver.receive()
    assert operator.stats().dead == 3


def test_receive_revives_schedules(make: Make, now: Now):
    make().schedules.add("tick", "every 10s")
    make().purge("pending")
    now.later(11)
    assert make().receive() == []
    now.later(10)
    assert [message.schedule for message in make().receive()] == ["tick"]
