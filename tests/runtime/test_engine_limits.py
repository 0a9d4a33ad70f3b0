"""A fleet with a backlog that a limit holds back: it costs little, and the consumers that wait are not forgotten."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Consumer, Message, Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.transport import listener
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.runtime.test_engine_idle import KEY, PROGRAM, SIZE, Fleet


@pytest.fixture
def fleet(own_server: RedisServer, tmp_path: Path) -> Iterator[Fleet]:
    """Idle processes on a server of their own."""
    program = tmp_path / "consumer.py"
    program.write_text(PROGRAM)
    fleet = Fleet(own_server, program, 1)
    fleet.start()
    yield fleet
    fleet.close()


def acked(fleet: Fleet) -> int:
    """The count that `stats` has, read without a script."""
    return int(fleet.redis.hget(f"{KEY}stats", "acked") or 0)


@pytest.mark.full
def test_fleet_is_idle_while_a_limit_holds_back_its_backlog(fleet: Fleet) -> None:
    fleet.queue.configure(rate="3/d")
    fleet.queue.send_many([Outgoing(n) for n in range(1000)])
    assert eventually(lambda: acked(fleet) == 3)
    begun, scripts = time.monotonic(), fleet.calls("evalsha")
    assert eventually(lambda: fleet.calls("evalsha") >= scripts + 6 * SIZE)
    assert fleet.calls("evalsha") - scripts <= (time.monotonic() - begun + 1) * SIZE * 5
    stats = fleet.queue.stats()
    assert (stats.delivered, stats.inside, stats.missing) == (3, 997, 0)


@pytest.mark.full
def test_one_consumer_wakes_for_each_message_that_the_rate_allows(fleet: Fleet) -> None:
    """It polls, promotes and claims, and once more with the ack. If all consumers woke, each would do that in vain."""
    fleet.queue.configure(rate="1/20ms")
    fleet.queue.send_many([Outgoing(n) for n in range(400)])
    assert eventually(lambda: acked(fleet) >= 20)
    begun, before, scripts = time.monotonic(), acked(fleet), fleet.calls("evalsha")
    assert eventually(lambda: acked(fleet) >= before + 100)
    gone, others = acked(fleet) - before, (time.monotonic() - begun + 1) * SIZE * 5
    assert fleet.calls("evalsha") - scripts <= 8 * gone + others


@pytest.mark.full
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_lost_watcher_of_a_rate_is_replaced(fleet: Fleet, how: signal.Signals) -> None:
    fleet.queue.configure(rate="1/50ms")
    fleet.queue.send_many([Outgoing(n) for n in range(60)])
    assert eventually(lambda: fleet.watcher() != "" and acked(fleet) >= 5)
    fleet.end(fleet.watcher() or "c0", how)
    assert eventually(lambda: acked(fleet) == 60)


@pytest.mark.full
def test_removing_the_limit_lets_the_fleet_continue(fleet: Fleet) -> None:
    fleet.queue.configure(rate="1/d", concurrency=2)
    fleet.queue.send_many([Outgoing(n) for n in range(200)])
    assert eventually(lambda: acked(fleet) == 1)
    fleet.queue.configure(rate=None)
    assert eventually(lambda: acked(fleet) == 200)


def test_fleet_never_runs_more_messages_than_the_concurrency(redis_client: redis.Redis) -> None:
    queues = [Queue("jobs", redis=redis_client, concurrency=3) for _ in range(3)]
    running, most, lock = set[str](), [0], threading.Lock()

    def handle(message: Message) -> None:
        with lock:
            running.add(message.id)
            most.append(len(running))
        time.sleep(0.002)
        with lock:
            running.discard(message.id)

    consumers = [Consumer(queue, handle, concurrency=4) for queue in queues]
    for consumer in consumers:
        consumer.start()
    queues[0].send_many([Outgoing(n) for n in range(200)])
    assert eventually(lambda: queues[0].stats().acked == 200)
    for consumer in consumers:
        consumer.stop()
    assert max(most) <= 3
    assert queues[0].stats().delivered == 200


class Waits:
    """How many seconds each wait for the bell asked for. As a wait ends, the scripts' clock moves on."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self.now_ms = 1_000_000.0
        self._wait = listener.wait

    def clock(self) -> float:
        return self.now_ms

    def wait(self, bells: Sequence[listener.BellListener], seconds: float, *others: Any) -> None:
        self.asked.append(seconds)
        self._wait(bells, seconds, *others)
        self.now_ms += 200


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Waits:
    waits = Waits()
    monkeypatch.setattr(listener, "wait", waits.wait)
    return waits


def test_consumer_that_is_held_back_sleeps_until_the_next_message_may_go(
    redis_client: redis.Redis, waits: Waits
) -> None:
    queue = Queue("jobs", redis=redis_client, rate="1/200ms", clock=waits.clock)
    queue.send_many([Outgoing(n) for n in range(4)])
    assert len(queue.receive(1)) == 1
    assert Consumer(queue, lambda _: None).run(max_messages=2) == 2
    assert waits.asked[0] <= 0.2  # later ones also depend on how soon a handler ends


def test_receiver_that_is_held_back_sleeps_until_the_next_message_may_go(
    redis_client: redis.Redis, waits: Waits
) -> None:
    with Queue("jobs", redis=redis_client, rate="1/200ms", clock=waits.clock) as queue:
        queue.send_many([Outgoing(n) for n in range(3)])
        assert len(queue.receive()) == 1
        assert len(queue.receive(wait=60)) == 1
    assert waits.asked
    assert max(waits.asked) <= 0.2


def test_consumer_of_a_queue_that_cannot_be_limited_does_not_start(redis_client: redis.Redis) -> None:
    with Queue("jobs", redis=redis_client, shards=3) as spread:
        spread.send("x")
    with Queue("jobs", redis=redis_client, shards=None, rate="5/s") as queue, pytest.raises(InvalidInput):
        Consumer(queue, lambda _: None).start()


def test_consumer_that_stops_wakes_others_for_its_free_place(redis_client: redis.Redis) -> None:
    queue = Queue("jobs", redis=redis_client, concurrency=1)
    queue.send_many([Outgoing(n) for n in range(3)])
    goes_on = threading.Event()
    consumer = Consumer(queue, lambda _: goes_on.wait(120), concurrency=2)
    consumer.start()
    assert eventually(lambda: queue.stats().unack == 1)
    assert eventually(
        lambda: redis_client.info("clients")["blocked_clients"] == 1
    )  # it has taken the token of the send
    stopping = threading.Thread(target=consumer.stop)
    stopping.start()
    assert eventually(lambda: bool(redis_client.exists(f"{KEY}bell")))
    redis_client.delete(f"{KEY}bell")  # it rang when the stop began, but nothing was free then
    goes_on.set()
    stopping.join()
    assert redis_client.exists(f"{KEY}bell")


def test_burst_over_several_queues_waits_for_messages_that_a_rate_holds_back(redis_client: redis.Redis) -> None:
    slow, quick = Queue("slow", redis=redis_client, rate="5/200ms"), Queue("quick", redis=redis_client)
    for queue in (slow, quick):
        queue.send_many([Outgoing(number) for number in range(12)])
    assert Consumer([slow, quick], lambda _: None).run(burst=True) == 24


@pytest.mark.full
def test_burst_ends_when_another_consumer_has_taken_the_messages_that_a_rate_held_back(
    redis_client: redis.Redis,
) -> None:
    one, other = Queue("jobs", redis=redis_client, rate="2/s"), Queue("jobs", redis=redis_client)
    one.send_many([Outgoing(number) for number in range(8)])
    consumer = Consumer(other, lambda _: None, concurrency=2)
    one.configure(rate="2/s")
    consumer.start()
    bursts = threading.Thread(target=Consumer(one, lambda _: None, concurrency=2).run, kwargs={"burst": True})
    bursts.start()
    assert eventually(lambda: one.stats().acked == 8)
    bursts.join(120)
    assert not bursts.is_alive()
    consumer.stop()


def test_message_parked_for_its_key_gives_its_place_to_others_at_once(redis_client: redis.Redis) -> None:
    queue = Queue(
        "jobs",
        redis=redis_client,
        concurrency=4,
        concurrency_per_key=1,
        concurrency_key=lambda message: message.headers["tenant"],
    )
    queue.send_many([Outgoing(number, headers={"tenant": "hot"}) for number in range(600)])
    queue.send("other", headers={"tenant": "cool"}, delay=0.01)
    over, handled = threading.Event(), []

    def handle(message: Message) -> None:
        handled.append(message.payload)
        if message.payload != "other":
            over.wait(120)

    consumer = Consumer(queue, handle)
    consumer.start()
    assert eventually(lambda: "other" in handled)  # and not a second later for every three parked messages: 200 s
    over.set()
    consumer.stop()
