"""The async API on a Cluster, behind Sentinel, with a password, and when connections break."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.asyncio.connection import AbstractConnection

from delayq import Outgoing, Reject, backoff, errors
from delayq import Queue as SyncQueue
from delayq.aio import Consumer, Message, Queue
from delayq.aio.doctor import examine
from delayq.protocol.queue_keys import QueueKeys
from tests.aio.conftest import Run
from tests.aio.test_batches import becomes as counts
from tests.aio.test_consumer import becomes
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster, Watched, is_master

StartServer = Callable[..., RedisServer]


async def live(url: str, shards: int) -> None:
    """Let messages end in every possible way."""
    async with Queue("work", url=url, shards=shards, backoff=backoff.fixed(0.05), max_retries=1) as queue:

        async def handle(message: Message) -> Any:
            if message.payload == "reject":
                raise Reject("asked to")
            return message.payload != "fail"

        consumer = Consumer(queue, handle)
        await consumer.start()
        await queue.send_many(Outgoing("fine", delay=n / 100) for n in range(30))
        await queue.send("reject")
        await queue.send("fail")
        await queue.send("late", id="late", delay=3600)
        assert await queue.cancel("late") == "cancelled"
        await queue.send("end", delay=0.6)
        assert await counts(queue, acked=31, dead=2)
        await consumer.stop()
        stats = await queue.stats()
        assert (stats.acked, stats.dead, stats.cancelled, stats.unack, stats.missing) == (31, 2, 1, 0, 0)
        assert (await examine(queue)).healthy


@pytest.mark.full
@pytest.mark.parametrize("shards", [1, 5])
def test_messages_live_their_whole_life_on_a_cluster(run: Run, shared_cluster: Cluster, shards: int):
    run(live(shared_cluster.url, shards))


@pytest.mark.full
def test_messages_live_their_whole_life_behind_sentinel(run: Run, start_server: StartServer):
    run(live(Watched(start_server).url, 1))


@pytest.mark.full
def test_calls_follow_a_moving_slot(run: Run, start_server: StartServer):
    cluster = Cluster(start_server, empty=1)
    keys = QueueKeys("delayq", "work")

    async def main() -> None:
        async with Queue("work", url=cluster.url) as queue:
            await queue.send("first")
            (target,) = cluster.empty
            await asyncio.to_thread(cluster.move, keys.meta, target)
            await queue.send("second", id="second")
            with target.client() as client:
                assert client.exists(keys.message("second")) == 1
            messages = await queue.receive()
            assert sorted(message.payload for message in messages) == ["first", "second"]
            assert await queue.ack(messages) == [True, True]

    run(main())


@pytest.mark.full
def test_wait_for_replicas_is_about_the_message_that_was_sent(
    run: Run, shared_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    """There is no replica, whichever connection the WAIT takes."""
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 10)

    async def main() -> None:
        async with Queue("work", url=shared_cluster.url) as queue:
            await queue.send("first")
            with pytest.raises(errors.NotReplicated):
                await queue.send("second", wait_replicas=1)

    run(main())


@pytest.mark.full
def test_unavailable_node_does_not_affect_the_others(run: Run, start_server: StartServer):
    cluster = Cluster(start_server, config={"cluster-require-full-coverage": "no"})

    async def main() -> None:
        async with Queue("work", url=cluster.url) as queue, Queue("other", url=cluster.url) as other:
            await queue.send("x")
            await other.send("x")
            away = cluster.owner(QueueKeys("delayq", "other").meta)
            assert away is not cluster.owner(QueueKeys("delayq", "work").meta)
            away.kill()
            with pytest.raises(errors.ServerError):
                await other.send("y")
            await queue.send("y")
            assert len(await queue.receive()) == 2

    run(main())


@pytest.mark.full
def test_consumer_follows_a_failover_behind_sentinel(
    run: Run, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 25_000)  # for a replica that pauses
    watched = Watched(start_server, replicas=1, failover_timeout=5000)

    async def main() -> None:
        handled: set[Any] = set()

        async def handle(message: Message) -> None:
            handled.add(message.payload)

        async with Queue("work", url=watched.url) as queue:
            consumer = Consumer(queue, handle)
            await consumer.start()
            await queue.send("before", wait_replicas=1)
            assert await becomes(lambda: "before" in handled)
            watched.give_up_after(500)  # not earlier: a machine that pauses must not be taken for a lost master
            watched.master.kill()
            assert await becomes(lambda: is_master(watched.replicas[0]))
            sending = asyncio.create_task(insist(queue, "after"))
            assert await becomes(lambda: "after" in handled)
            await sending
            await consumer.stop()

    run(main())


async def insist(queue: Queue, payload: str) -> None:
    """Send a message, whatever the sentinels say meanwhile: they may name the old master for a while."""
    while True:
        with contextlib.suppress(errors.ServerError):
            await queue.send(payload)
            return
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("config", [{}, pytest.param({"cluster-enabled": "yes"}, marks=pytest.mark.full)])
def test_server_that_is_not_a_complete_cluster_is_reported(run: Run, start_server: StartServer, config: dict[str, str]):
    server = start_server(port=True, config=config)

    async def main() -> None:
        async with Queue("work", url=f"redis+cluster://127.0.0.1:{server.port}") as queue:
            with pytest.raises(errors.ServerError, match="cluster"):
                await queue.send("x")
        assert await becomes(lambda: len(asyncio.all_tasks()) == 1)  # redis.asyncio briefly has some tasks of its own

    run(main())


def test_wrong_password_is_reported_at_once(run: Run, start_server: StartServer):
    server = start_server(port=True, config={"requirepass": "secret"})

    async def main() -> None:
        async with Queue("work", url=server.url) as queue:
            with pytest.raises(errors.LoginRefused):
                await queue.send("x")
        async with Queue("work", url=server.url.replace("://", "://:secret@")) as queue:
            await queue.send("x")

    run(main())


def test_claim_on_a_broken_connection_is_not_sent_again(run: Run, redis_server: RedisServer):
    """A copy would lease messages to a consumer that never learns about them."""

    async def main() -> None:
        async with Queue("work", url=redis_server.url) as queue:
            await queue.send_many(Outgoing(n) for n in range(10))
            for message in await queue.receive(1):  # now the server knows the scripts, and the queue knows its record
                await message.release()
            connection = queue._executor
            client: Any = await connection.connected()
            idle: Any = await client.connection_pool.get_connection()
            exchange, tries = idle.fast_stream.exchange, []

            async def broken(*call: Any) -> Any:
                tries.append(1)
                await exchange(*call)
                raise redis.ConnectionError("cut")

            idle.fast_stream.exchange = broken
            await client.connection_pool.release(idle)
            with pytest.raises(errors.ServerUnreachable):
                await queue.receive(3)
            assert len(tries) == 1
            del idle.fast_stream.exchange
            assert (await queue.stats()).unack <= 3
        with SyncQueue("work", url=redis_server.url) as other:
            assert other.stats().inside == 10

    run(main())


def test_connection_to_a_former_master_is_given_up(run: Run, start_server: StartServer):
    server = start_server()

    async def main() -> None:
        async with Queue("work", url=server.url) as queue:
            await queue.send("first")
            with server.client() as client:
                client.replicaof("127.0.0.1", 1)
                with pytest.raises(errors.DelayqError):
                    await queue.send("second")
                client.replicaof("NO", "ONE")
                before = {each["id"] for each in client.client_list() if each["name"] == "delayq"}
                await queue.send("third")
                after = {each["id"] for each in client.client_list() if each["name"] == "delayq"}
            assert after
            assert after.isdisjoint(before)

    run(main())


@pytest.mark.full
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (redis.AuthenticationError("invalid password"), errors.LoginRefused),
        (redis.ResponseError("ERR no such thing"), errors.ServerError),
    ],
    ids=["authentication", "other"],
)
def test_reason_why_a_node_refuses_connections_is_reported_at_once(
    run: Run,
    shared_cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    error: redis.RedisError,
    expected: type[errors.DelayqError],
):
    tried = []

    async def refuse(self: AbstractConnection) -> None:
        tried.append(self)
        raise error

    async def main() -> None:
        async with Queue("work", url=shared_cluster.url) as queue:
            await queue._executor.connected()
            with monkeypatch.context() as patch:
                patch.setattr(AbstractConnection, "connect", refuse)
                with pytest.raises(expected):
                    await queue.stats()
            assert len(tried) == 1

    run(main())
