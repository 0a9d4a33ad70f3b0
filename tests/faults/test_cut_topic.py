"""Cut the connection of a topic's consumer at each kind of call: every record is still handled."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest

from delayq import NewRecord, Record, Reject, Topic, TopicConsumer, aio, backoff
from tests.harness.proxy import Cut, Proxy, Way
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

COUNT = 30
FAILS, REJECTED, LATE, LEFT = 3, 4, COUNT, COUNT + 1  # payloads
CALLS = (
    "unacked",
    "reclaim",
    "poll",
    "ack",
    "fail",
    "dead_letter",
    "redeliver",
    "renew",
    "due",
    "append",
    "drop_idle_consumers",
)
CUTS: list[tuple[str, Way]] = [*((call, "after") for call in CALLS), ("poll", "before"), ("ack", "before")]
QUICK = {("poll", "after"), ("ack", "after"), ("fail", "after")}  # the part of CUTS that `make test` runs

PATIENCE = 10.0  # seconds that a consumer may make no progress
HELD = 12.0  # seconds between two attempts, while the record must stay held

Life = Callable[[str, Callable[[Record], None], Callable[[], bool], float], None]


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.socket) as proxy:
        yield proxy


def lives(url: str, handler: Callable[[Record], None], is_done: Callable[[], bool], wait: float) -> None:
    """Run a consumer until everything is done."""
    with Topic("orders", url=url) as topic:
        group = topic.group("billing", max_deliveries=5)
        consumer = TopicConsumer(group, handler, ack_timeout=PATIENCE, backoff=backoff.fixed(wait))
        consumer.start()
        done = eventually(is_done)
        consumer.stop()
        assert done


def lives_async(url: str, handler: Callable[[Record], None], is_done: Callable[[], bool], wait: float) -> None:
    """Run an async consumer in the same way."""

    async def handle(record: Record) -> None:
        handler(record)

    async def live() -> bool:
        async with aio.Topic("orders", url=url) as topic:
            group = await topic.group("billing", max_deliveries=5)
            consumer = aio.TopicConsumer(group, handle, ack_timeout=PATIENCE, backoff=backoff.fixed(wait))
            await consumer.start()
            done = await asyncio.to_thread(eventually, is_done)
            await consumer.stop()
            return done

    assert asyncio.run(live())


@pytest.mark.parametrize(
    ("call", "way", "life"),
    [
        pytest.param(*cut, life, marks=() if life is lives and cut in QUICK else pytest.mark.full)
        for cut in CUTS
        for life in (lives, lives_async)
    ],
)
def test_every_record_is_handled_when_a_connection_is_cut(
    redis_server: RedisServer, proxy: Proxy, call: str, way: Way, life: Life
):
    handled: dict[int, list[int]] = defaultdict(list)

    def handle(record: Record) -> None:
        handled[record.payload].append(record.deliveries)
        if record.payload == REJECTED:
            raise Reject("unwanted")
        if record.payload == FAILS and record.deliveries == 1:
            raise ValueError("not yet")

    def decide(name: str) -> Cut | None:
        return Cut(way) if name == f"topics/{call}" and not proxy.cuts and handled_enough() else None

    def handled_enough() -> bool:  # what begins a life is to be cut there; a poll that brings something, too
        return call in {"unacked", "reclaim", "poll", "drop_idle_consumers"} or bool(handled)

    with Topic("orders", url=redis_server.url) as topic, redis_server.client() as client:
        group = topic.group("billing")
        topic.publish(LEFT)
        (left,) = group.poll("dead")
        client.xclaim(topic._context.shards[0].keys.stream, "billing", "dead", 0, [left.id], idle=60_000, justid=True)
        topic.publish_many([NewRecord(number) for number in range(COUNT)])
        topic.publish(LATE, delay=0.3)
        proxy.decide = decide
        wait = HELD if call == "renew" else 0.5

        def is_done() -> bool:
            return len(handled) == COUNT + 2 and not group.unacked() and proxy.cuts == 1

        life(proxy.url, handle, is_done, wait)
        assert sorted(handled) == list(range(COUNT + 2))
        assert [letter.record.payload for letter in group.dead()] == [REJECTED]
        if call not in {"reclaim", "redeliver"}:
            assert (handled[FAILS], handled[LEFT], handled[0]) == ([1, 2], [2], [1])
