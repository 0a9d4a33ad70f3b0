"""Messages of very different sizes: whatever came before, a round trip brings a bounded number of bytes."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from delayq import Consumer, Outgoing, Queue, aio, backoff, doctor
from delayq.errors import ServerUnreachable
from delayq.operations.byte_budget import DOWN_BYTES
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

SMALL, LARGE, GIANT = 100, 900_000, 5_000_000
MIXES: dict[str, list[int]] = {
    "small, then large": [SMALL] * 300 + [LARGE] * 30,
    "large, then small": [LARGE] * 30 + [SMALL] * 300,
    "alternating": [SMALL, LARGE] * 30,
    "one among many": [*[SMALL] * 500, GIANT, *[SMALL] * 499],
}
OPTIONS: dict[str, Any] = {"lease": 60, "max_retries": 1, "max_payload": GIANT, "backoff": backoff.fixed(0)}
Handled = Counter[tuple[str, int]]  # ids and attempts


def received(url: str, count: int) -> Handled:
    """Receive messages, and again after an outage."""
    handled: Handled = Counter()
    with Queue("sizes", url=url, **OPTIONS) as queue:
        while len(handled) < count:
            with contextlib.suppress(ServerUnreachable):
                messages = queue.receive(min(count, 500), wait=1)
                handled.update((each.id, each.attempt) for each in messages)
                queue.ack(messages)
                if not messages and not any((queue.stats().ready, queue.stats().retry, queue.stats().unack)):
                    break
    return handled


def received_async(url: str, count: int) -> Handled:
    async def run() -> Handled:
        handled: Handled = Counter()
        async with aio.Queue("sizes", url=url, **OPTIONS) as queue:
            while len(handled) < count:
                with contextlib.suppress(ServerUnreachable):
                    messages = await queue.receive(min(count, 500), wait=1)
                    handled.update((each.id, each.attempt) for each in messages)
                    await queue.ack(messages)
                    stats = await queue.stats()
                    if not messages and not any((stats.ready, stats.retry, stats.unack)):
                        break
        return handled

    return asyncio.run(run())


def consumed(url: str, count: int) -> Handled:
    del count
    handled: Handled = Counter()
    with Queue("sizes", url=url, **OPTIONS) as queue:
        Consumer(queue, lambda message: handled.update([(message.id, message.attempt)]), concurrency=4).drain()
    return handled


def consumed_async(url: str, count: int) -> Handled:
    del count
    handled: Handled = Counter()

    async def handle(message: aio.Message) -> None:
        handled.update([(message.id, message.attempt)])

    async def run() -> None:
        async with aio.Queue("sizes", url=url, **OPTIONS) as queue:
            await aio.Consumer(queue, handle, concurrency=4).drain()

    asyncio.run(run())
    return handled


WAYS: dict[str, Callable[[str, int], Handled]] = {
    "receive": received,
    "receive, async": received_async,
    "consumer": consumed,
    "consumer, async": consumed_async,
}
each_way = pytest.mark.parametrize("way", WAYS)
each_mix = pytest.mark.parametrize("mix", MIXES)


def fill(server: RedisServer, sizes: Iterable[int]) -> set[str]:
    """Send messages of these sizes, due one after the other; return their ids."""
    with Queue("sizes", url=server.url, **OPTIONS) as queue:
        outgoing = [Outgoing(b"x" * size, id=f"{number}-{size}") for number, size in enumerate(sizes)]
        return {each.id for each in queue.send_many(outgoing)}


def limit(server: RedisServer, **settings: str) -> None:
    with server.client() as client:
        if client.config_get("min-string-size-avoid-copy-reply"):  # Valkey 9 does not count what it need not copy
            client.config_set("min-string-size-avoid-copy-reply", 2**30)
        for name, value in settings.items():
            client.config_set(name.replace("_", "-"), value)


def cut(server: RedisServer) -> int:
    """How often the server has closed a connection because of its buffers; Redis 6.2 and 7.0 say it in their logs."""
    with server.client() as client:
        stats = client.info("stats")
    counted = stats.get("client_output_buffer_limit_disconnections")
    if counted is None:
        counted = server.log(1_000_000).count("for overcoming of output buffer limits")
    return int(counted) + int(stats.get("evicted_clients", 0))


@pytest.fixture
def server(start_server: StartServer) -> RedisServer:
    return start_server()


@each_way
@each_mix
def test_round_trip_is_bounded_whatever_the_sizes_before(server: RedisServer, way: str, mix: str):
    ids = fill(server, MIXES[mix])
    most = max(DOWN_BYTES, *MIXES[mix]) + 500_000  # for what surrounds them; a limit in bytes ends the connection
    limit(server, client_output_buffer_limit=f"normal {most} 0 0")
    handled = WAYS[way](server.url, len(ids))
    assert handled == Counter(dict.fromkeys([(each, 1) for each in ids], 1))
    assert cut(server) == 0, "a round trip was larger than it may be"


@each_way
@pytest.mark.parametrize("setting", ["client_output_buffer_limit", "maxmemory_clients"])
def test_fetch_that_the_server_cuts_becomes_smaller_and_costs_no_attempt(server: RedisServer, way: str, setting: str):
    if setting == "maxmemory_clients" and server.version == "6.2":
        pytest.skip("Redis limits the memory of all clients since 7.0")
    ids = fill(server, [SMALL] * 50 + [LARGE] * 12)
    limit(server, **{setting: "normal 2000000 0 0" if setting.startswith("client") else "3500000"})
    handled = WAYS[way](server.url, len(ids))
    assert handled == Counter(dict.fromkeys([(each, 1) for each in ids], 1))
    assert cut(server) > 0, "otherwise this shows nothing"


@each_way
def test_message_that_the_server_never_lets_through_is_buried_and_keeps_nobody_back(server: RedisServer, way: str):
    ids = fill(server, [*[SMALL] * 20, GIANT, *[SMALL] * 20])
    limit(server, client_output_buffer_limit="normal 2000000 0 0")
    handled = WAYS[way](server.url, len(ids))
    small = {each for each in ids if not each.endswith(str(GIANT))}
    assert handled == Counter(dict.fromkeys([(each, 1) for each in small], 1))
    limit(server, client_output_buffer_limit="normal 0 0 0")
    with Queue("sizes", url=server.url, **OPTIONS) as queue:
        (dead,) = queue.dead.list()
        assert (dead.id, dead.reason, dead.attempts) == (f"20-{GIANT}", "fetch-failed", 2)
        assert "client-output-buffer-limit" in (dead.error or "")
        assert queue.dead.requeue(dead.id) == 1
        (message,) = queue.receive()
        assert len(message.body) == GIANT
        message.ack()
        assert queue.stats().missing == 0


def test_consumer_holds_messages_that_it_has_not_fetched_yet(redis_server: RedisServer):
    """Its heartbeat renews them, and it hands them back when it stops."""
    begun, go_on = threading.Event(), threading.Event()

    def handle(_: object) -> None:
        begun.set()
        go_on.wait(60)

    ids = fill(redis_server, [SMALL] * 40 + [LARGE] * 20)
    with Queue("sizes", url=redis_server.url, **OPTIONS | {"lease": 2}) as queue:
        queue._context.claims.budget.note(1, SMALL, 0.0)
        consumer = Consumer(queue, handle, concurrency=60)
        consumer.start()
        assert begun.wait(60)
        go_on.set()
        assert eventually(lambda: consumer.handled == len(ids))
        consumer.stop()
        stats = queue.stats()
        assert (stats.acked, stats.lease_lost, stats.nacked) == (len(ids), 0, 0)


@pytest.mark.parametrize("setting", ["plain", "cut"])
def test_lists_and_doctor_read_large_messages_within_the_bound(server: RedisServer, setting: str):
    ids = fill(server, MIXES["alternating"])
    most = DOWN_BYTES + 500_000 if setting == "plain" else 2_000_000
    limit(server, client_output_buffer_limit=f"normal {most} 0 0")
    with Queue("sizes", url=server.url, **OPTIONS) as queue:
        assert {each.id for each in queue.peek("pending", limit=100)} == ids
        assert doctor.examine(queue).healthy
        assert [each.created for each in queue.send_many([Outgoing("", id=each) for each in sorted(ids)])] == [
            False
        ] * 60
    assert (cut(server) > 0) == (setting == "cut")
