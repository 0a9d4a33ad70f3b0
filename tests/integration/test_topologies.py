"""The whole life of messages behind Sentinel, on a Cluster, and with replicas that confirm."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from delayq import Consumer, Outgoing, Queue
from delayq.errors import NotReplicated
from tests.harness.servers import RedisServer
from tests.harness.topologies import Watched, follow
from tests.harness.waiting import eventually

StartServer = Callable[..., RedisServer]


@pytest.fixture
def sentinel_url(start_server: StartServer) -> str:
    """The URL of a master that one Sentinel watches."""
    return Watched(start_server).url


def live(url: str, shards: int) -> None:
    """Send, fail, retry, cancel, reject and ack. The statistics must balance afterwards."""
    with Queue("work", url=url, shards=shards, max_retries=0) as queue:
        sents = queue.send_many([Outgoing(n, delay=0.02) for n in range(60)], wait_replicas=0)
        later = queue.send("later", delay=3600)
        handled: list[int] = []

        def handle(message: object) -> bool:
            handled.append(message.payload)  # type: ignore[attr-defined]
            return message.payload % 20 != 7  # type: ignore[attr-defined, no-any-return]

        consumer = Consumer(queue, handle, concurrency=4)
        consumer.start()
        assert eventually(lambda: len(handled) == len(sents))
        queue.send(100)  # an idle consumer hears the bell, whichever node it is on
        assert eventually(lambda: 100 in handled)
        consumer.stop()
        assert queue.cancel(later.id) == "cancelled"
        assert queue.purge() == 3
        stats = queue.stats()
        assert (stats.sent, stats.acked, stats.died, stats.purged, stats.cancelled) == (62, 58, 3, 3, 1)
        assert (stats.inside, stats.garbage, stats.missing) == (0, 0, 0)


@pytest.mark.full
@pytest.mark.parametrize("shards", [1, 7])
def test_messages_live_their_whole_life_on_a_cluster(cluster_url: str, shards: int) -> None:
    live(cluster_url, shards)


@pytest.mark.full
def test_messages_live_their_whole_life_behind_sentinel(sentinel_url: str) -> None:
    live(sentinel_url, shards=1)


@pytest.mark.full
def test_pull_style_receiver_on_a_cluster_hears_the_bell(cluster_url: str) -> None:
    with Queue("pull", url=cluster_url, shards=4) as queue:
        queue.send("x", delay=0.1)
        (message,) = queue.receive(wait=120)
        message.ack()
        assert queue.stats().acked == 1


def test_send_that_waits_for_replicas_raises_an_error_when_too_few_confirm(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 50)
    queue = Queue("safe", redis=redis_client)
    with pytest.raises(NotReplicated, match="0 of 1 replicas"):
        queue.send("x", id="order-1", wait_replicas=1)
    assert queue.stats().pending == 1


@pytest.mark.full
def test_send_that_waits_for_replicas_returns_once_they_confirm(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 25_000)  # for a replica that pauses
    master = start_server(port=True)
    replica = start_server(port=True)
    follow(replica, master)
    with replica.client() as client, Queue("safe", url=master.url) as queue:
        sent = queue.send("x", wait_replicas=1)
        assert client.exists(f"delayq:{{safe}}:msg:{sent.id}") == 1


@pytest.mark.full
def test_send_that_waits_for_replicas_on_a_cluster_asks_the_node_of_its_slot(
    cluster_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 50)
    with Queue("safe", url=cluster_url, shards=3) as queue, pytest.raises(NotReplicated):
        queue.send_many([Outgoing(n) for n in range(10)], wait_replicas=1)
