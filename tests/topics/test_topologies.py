"""Topics on a Redis Cluster, and behind Sentinel during a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from delayq import NewRecord, Record, Reject, Topic, TopicConsumer, aio, backoff
from delayq.errors import ServerError, UnknownGroup
from tests.conftest import binary
from tests.harness.servers import RedisServer
from tests.harness.topologies import SETTLED_SECONDS, Cluster, Watched, running_cluster
from tests.harness.waiting import eventually
from tests.topics.conftest import Awaited

StartServer = Callable[..., RedisServer]
pytestmark = pytest.mark.full

COUNT = 60


@pytest.fixture(params=["sync", "aio"])
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def cluster(default_version: str) -> Iterator[Cluster]:
    with running_cluster(binary(default_version)) as cluster:
        yield cluster


@pytest.fixture
def topic(face: str, cluster: Cluster) -> Iterator[Any]:
    """A topic of three shards, on an empty cluster."""
    cluster.flush()
    if face == "sync":
        with Topic("orders", url=cluster.url, shards=3) as topic:
            yield topic
        return
    with asyncio.Runner() as runner:
        awaited: Any = Awaited(aio.Topic("orders", url=cluster.url, shards=3), runner)
        yield awaited
        awaited.close()


def consumer_of(group: Any, handle: Callable[[Record], Any]) -> Any:
    if not isinstance(group, Awaited):
        return TopicConsumer(group, handle, backoff=backoff.fixed(0))
    return Awaited(aio.TopicConsumer(group.target, handle, backoff=backoff.fixed(0)), group.runner)


def test_all_topic_operations_work_on_a_cluster(topic: Any):
    group, other = topic.group("billing", "0", max_deliveries=2), topic.group("mail", "0")
    published = topic.publish_many([NewRecord(number) for number in range(COUNT)])
    assert (topic.length(), len({each.id for each in topic.range()})) == (COUNT, len({each.id for each in published}))
    assert {record.shard for record in topic.range()} == {0, 1, 2}
    assert [each.lag for each in topic.groups()] == [COUNT, COUNT]
    assert len(list(topic.tail("0", wait=0))) == COUNT

    records = group.poll("a", 9)
    assert (group.ack(records[:2]), group.bury(records[2], "a"), len(group.unacked())) == (2, True, 6)
    assert sorted(each.payload for each in group.own_unacked("a")) == sorted(each.payload for each in records[3:])
    assert len(group.fetch_not_acked("b", 3600)) == 0
    assert (group.remove_consumer("a", to="b"), [each.name for each in group.consumers()]) == (6, ["b"])
    assert group.requeue_dead(group.dead()) == 1
    assert group.clear_ghosts() == 0

    assert topic.publish("later", delay=0.1, id="later").created
    assert topic.publish("never", delay=3600, id="never").created
    assert topic.cancel("never")
    assert eventually(lambda: topic.length() == COUNT + 1)

    seen: list[Any] = []

    def handle(record: Record) -> bool:
        seen.append(record.payload)
        if record.payload == 7:
            raise Reject("unwanted")
        return record.payload != 8 or record.deliveries > 1

    assert consumer_of(other, handle).drain() == COUNT + 2
    assert (sorted(map(str, set(seen))), other.unacked()) == (sorted(map(str, [*range(COUNT), "later"])), [])
    assert [letter.record.payload for letter in other.dead()] == [7]

    assert topic.trim_acked().slowest == "billing"
    group.set_position("$")
    assert group.ack(group.own_unacked("b")) == 6
    (back,) = group.fetch_not_acked("b", 30)
    assert (back.payload, group.ack(back)) == (records[2].payload, 1)
    assert topic.delete(topic.range(count=1)) == 1
    assert topic.trim(max_length=5, approximate=False) > 0
    assert topic.shrink_by_last_size() == 0
    assert topic.trim_acked().dropped == 15
    assert (group.destroy(), [each.name for each in topic.groups()]) == (True, ["mail"])
    with pytest.raises(UnknownGroup):
        group.poll("a")


def test_consumer_continues_with_the_promoted_replica(start_server: StartServer):
    watched = Watched(start_server, replicas=1)
    seen: list[int] = []
    with Topic("orders", url=watched.url) as topic:
        group = topic.group("billing")
        consumer = TopicConsumer(group, lambda record: seen.append(record.payload), ack_timeout=1)
        consumer.start()
        topic.publish_many([NewRecord(number) for number in range(COUNT)])
        topic.publish(COUNT, delay=2)
        client: Any = topic._executor.client
        assert client.wait(1, 20_000) == 1  # otherwise the replica would not have them
        watched.give_up_after(500)  # not earlier: a pause of the machine must not look like a lost master
        watched.master.kill()

        def published() -> bool:
            try:
                topic.publish(COUNT + 1)
            except ServerError:
                return False
            return True

        assert eventually(published, SETTLED_SECONDS)
        assert eventually(lambda: set(seen) == set(range(COUNT + 2)), SETTLED_SECONDS)
        assert eventually(lambda: not group.unacked(), SETTLED_SECONDS)
        consumer.stop()
