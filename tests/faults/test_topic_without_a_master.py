"""One master of a cluster is away while programs begin to use a topic: the shards of the others are served."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from delayq import Record, Topic, TopicConsumer, aio
from tests.harness.dead_master import NAME, OWN_SLOTS, TopicScene
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster
from tests.harness.waiting import eventually

pytestmark = pytest.mark.full

SHARDS = 6
ACK_SECONDS = 3.0
SECONDS = 30.0  # a client that starts waits for a frozen node: up to 15 s
AWAY = [("killed", False), ("killed", True), ("frozen", False), ("frozen", True)]
StartServer = Callable[..., RedisServer]


@pytest.fixture
def cluster(start_server: StartServer) -> Cluster:
    """Three masters that serve their own slots without one another, and keep their data when they are killed."""
    return Cluster(start_server, config=OWN_SLOTS | {"appendonly": "yes"})


class Handler:
    """Counts the records that it handles, by key."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, record: Record) -> None:
        self.counts[record.payload] += 1


@contextmanager
def consuming(url: str, face: str, handler: Callable[[Record], None]) -> Iterator[None]:
    """Run a consumer of the group g with a client of its own."""
    if face == "sync":
        with Topic(NAME, url=url, shards=None) as topic:
            consumer = TopicConsumer(topic.group("g"), handler, ack_timeout=ACK_SECONDS)
            consumer.start()
            try:
                yield
            finally:
                consumer.stop()
        return
    began, ended = threading.Event(), threading.Event()

    async def handle(record: Record) -> None:
        handler(record)

    async def consume() -> None:
        async with aio.Topic(NAME, url=url, shards=None) as topic:
            consumer = aio.TopicConsumer(await topic.group("g"), handle, ack_timeout=ACK_SECONDS)
            await consumer.start()
            began.set()
            await asyncio.to_thread(ended.wait)
            await consumer.stop()

    thread = threading.Thread(target=asyncio.run, args=(consume(),))
    thread.start()
    try:
        assert began.wait(SECONDS)
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.by_lot(3)
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize(("how", "first"), AWAY)
def test_consumer_of_a_topic_starts_while_a_master_is_away(cluster: Cluster, how: str, first: bool, face: str) -> None:
    """It handles the records of healthy shards; the others once the master is back, each of them once."""
    scene, handler = TopicScene(cluster, first, SHARDS), Handler()
    with Topic(NAME, url=scene.url, shards=SHARDS) as topic:
        topic.group("g")
        waiting, healthy, later = scene.ids(10, dead=True), scene.ids(10), scene.ids(10)
        for each in [*waiting, *healthy]:
            topic.publish(each, key=each)
        with ExitStack() as consumer:
            with scene.away(how):
                consumer.enter_context(consuming(scene.url, face, handler))
                assert eventually(lambda: handler.counts.keys() >= set(healthy), 5)
                with Topic(NAME, url=scene.url, shards=None) as unaware:
                    for each in later:
                        unaware.publish(each, key=each)
                assert eventually(lambda: handler.counts.keys() >= set(later), 5)
            assert eventually(lambda: handler.counts.keys() >= set(waiting), SECONDS)
            time.sleep(ACK_SECONDS + 1)  # for whoever would take records over that are handled
        assert handler.counts == Counter([*waiting, *healthy, *later])
        assert topic.group("g").info().unacked == 0
