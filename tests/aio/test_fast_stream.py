"""Calls of the async API on connections that are used without redis-py's call path."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from delayq import Outgoing, errors
from delayq.aio import Queue
from delayq.protocol.command import Command, identity
from delayq.transport import clients_async, polling
from delayq.transport.executor_async import Executor
from delayq.transport.fast_stream import FastStream, stream_of
from tests.aio.conftest import Run, on_both_loops, on_one_loop
from tests.conftest import StartServer
from tests.harness.half_push import half_pushes
from tests.harness.servers import RedisServer
from tests.harness.tls import behind_tls, certify


@pytest.fixture
def exchanges(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the packets that went through fast streams."""
    sizes: list[int] = []
    exchange = FastStream.exchange

    async def counted(self: FastStream, packet: bytes, *args: Any) -> list[Any]:
        sizes.append(len(packet))
        return await exchange(self, packet, *args)

    monkeypatch.setattr(FastStream, "exchange", counted)
    return sizes


async def live(queue: Queue) -> None:
    """A message's life, where each call checks its own answer."""
    sents = [await queue.send(n, id=f"m{n}") for n in range(3)]
    assert [sent.id for sent in sents] == ["m0", "m1", "m2"]
    messages = await queue.receive(10)
    assert sorted((message.id, message.payload) for message in messages) == [("m0", 0), ("m1", 1), ("m2", 2)]
    assert await queue.ack(messages) == [True] * 3


@on_both_loops
def test_calls_pass_redis_py_by_once_connected(run: Run, redis_server: RedisServer, exchanges: list[int]):
    async def main() -> None:
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            await queue.send(0)  # the server learns its script
            exchanges.clear()
            for n in range(20):
                await queue.send(n)
            assert len(exchanges) == 20
            await queue.send(b"x" * 200_000)  # asyncio would have to wait until the server has read it
            assert len(exchanges) == 20
            (message,) = await queue.receive(1)
            assert message.payload == 0

    run(main())


@on_one_loop
def test_calls_go_through_tls(run: Run, redis_server: RedisServer, exchanges: list[int], tmp_path: Path):
    authority = certify(tmp_path)

    async def main(port: int) -> None:
        async with Queue("jobs", url=f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority}") as queue:
            await live(queue)

    with behind_tls(redis_server.socket, tmp_path) as port:
        run(main(port))
    assert exchanges


@on_both_loops
def test_calls_survive_connections_that_the_server_has_closed(run: Run, redis_server: RedisServer):
    """A claim must not run twice, so its connection is looked at before."""

    async def main() -> None:
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            await queue.send_many([Outgoing(n) for n in range(10)])
            for claims in range(1, 4):
                with redis_server.client() as client:
                    client.execute_command("CLIENT KILL TYPE normal SKIPME yes")
                (message,) = await queue.receive(1)
                assert message.attempt == 1
                assert (await queue.stats()).delivered == 3 + claims
                await message.ack()

    run(main())


@on_one_loop
@pytest.mark.parametrize("turns", range(6))
def test_reply_to_a_cancelled_call_reaches_no_other_one(run: Run, redis_server: RedisServer, turns: int):
    def echo(text: str) -> Command[Any]:
        return Command("k", ("MGET", f"{text}"), identity)

    async def main() -> None:
        with redis_server.client() as client:
            client.mset({"one": "1", "two": "2"})
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            task = asyncio.create_task(queue._executor.run([echo("one")]))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            assert await queue._executor.run([echo("two")]) == [[b"2"]]
            await asyncio.wait({task})

    run(main())


@on_one_loop
def test_frozen_server_is_given_up_after_the_sockets_timeout(run: Run, start_server: StartServer):
    server = start_server(port=True)

    async def main() -> None:
        async with Queue("jobs", url=f"redis://localhost:{server.port}?socket_timeout=0.3&retry_timeout=0") as queue:
            await live(queue)
            os.kill(server.pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                with pytest.raises(errors.ServerUnreachable):
                    await queue.stats()
                assert time.monotonic() - began >= 0.3
            finally:
                os.kill(server.pid, signal.SIGCONT)
            await live(queue)

    run(main())


@on_one_loop
def test_unexpected_reply_is_not_mistaken_for_the_next_one(run: Run, redis_server: RedisServer):
    async def main() -> None:
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            client: Any = await queue._executor.connected()
            pool = client.connection_pool
            idle = await pool.get_connection()
            assert stream_of(idle) is not None
            idle._reader.feed_data(b"+PONG\r\n")
            assert stream_of(idle) is None
            await pool.release(idle)
            await live(queue)

    run(main())


@on_one_loop
def test_idle_connection_is_checked_by_a_ping_before_it_is_used(
    run: Run, redis_server: RedisServer, exchanges: list[int]
):
    async def main() -> None:
        async with Queue(
            "jobs",
            url=f"{redis_server.url}{chr(38) if chr(63) in redis_server.url else chr(63)}health_check_interval=30",
        ) as queue:
            await live(queue)
            client: Any = await queue._executor.connected()
            (idle,) = client.connection_pool._available_connections
            assert idle.next_health_check > asyncio.get_running_loop().time() + 20
            idle.next_health_check = asyncio.get_running_loop().time() - 1
            exchanges.clear()
            await queue.send("x")
            assert exchanges == []
            await queue.send("x")
            assert len(exchanges) == 1

    run(main())


@on_one_loop
def test_error_of_one_call_does_not_affect_others(run: Run, redis_server: RedisServer, redis_client: redis.Redis):
    def length(key: str) -> Command[Any]:
        return Command(key, ("HMGET", key, "field"), identity)

    async def main() -> None:
        redis_client.set("text", "x")
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            one, wrong, other = await queue._executor.run([length("a"), length("text"), length("b")])
            assert (one, other) == ([None], [None])
            assert "WRONGTYPE" in str(wrong)

    run(main())


@on_one_loop
def test_others_have_their_turn_while_a_call_polls(
    run: Run, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    turns: list[str] = []

    async def main() -> None:
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            monkeypatch.setattr(polling, "SECONDS", 60)
            os.kill(redis_server.pid, signal.SIGSTOP)
            try:
                call = asyncio.create_task(queue._executor.run([Command("k", ("MGET", "k"), identity)]))
                for _ in range(50):
                    await asyncio.sleep(0)
                    turns.append("turn")
            finally:
                os.kill(redis_server.pid, signal.SIGCONT)
            assert await call == [[None]]

    run(main())
    assert len(turns) == 50


@on_both_loops
def test_reply_that_came_while_something_blocked_the_event_loop_is_not_late(
    run: Run, redis_server: RedisServer, redis_client: redis.Redis
):
    """It is so long that asyncio receives it in several parts."""
    redis_client.set("long", b"x" * 3_000_000)
    separator = "&" if "?" in redis_server.url else "?"

    async def main() -> None:
        url = f"{redis_server.url}{separator}socket_timeout=0.3&retry_timeout=0"
        async with Queue("jobs", url=url) as queue:
            await live(queue)
            task = asyncio.create_task(queue._executor.run([Command("long", ("MGET", "long"), identity)], repeat=False))
            for _ in range(10):
                await asyncio.sleep(0)
            time.sleep(0.5)  # noqa: ASYNC251
            assert await task == [[b"x" * 3_000_000]]

    run(main())


@pytest.fixture
def odd_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.asyncio.Redis]:
    """A client of the server of `half_pushes`."""

    async def check(_: Any) -> None:
        """Accept this server, which knows two commands."""

    monkeypatch.setattr(clients_async, "check_server", check)
    with half_pushes(tmp_path / "socket"):
        yield redis.asyncio.Redis(unix_socket_path=str(tmp_path / "socket"), protocol=3, socket_timeout=0.3)


@on_one_loop
def test_half_a_push_message_is_not_mistaken_for_a_reply(run: Run, odd_server: redis.asyncio.Redis):
    async def main() -> None:
        async with odd_server as client:
            executor = Executor(lambda: client, shared=True, label=None)
            for key in "abc":
                assert await executor.run([Command(key, ("MGET", key), identity)]) == [[key.encode()]]

    run(main())


@on_one_loop
def test_server_that_falls_silent_within_a_reply_is_given_up_after_the_sockets_timeout(
    run: Run, odd_server: redis.asyncio.Redis
):
    async def main() -> None:
        async with odd_server as client:
            executor = Executor(lambda: client, shared=True, label=None)
            async with asyncio.timeout(30):
                with pytest.raises(errors.ServerUnreachable):
                    await executor.run([Command("half", ("MGET", "half"), identity)], repeat=False)

    run(main())


@on_both_loops
def test_others_have_their_turn_between_calls_whose_replies_are_quick(
    run: Run, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(polling.PollBudget, "allows", lambda *_: True)

    async def main() -> None:
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for n in range(50):
                await queue.send(n)
            task.cancel()
            assert turns >= 50

    run(main())


@on_both_loops
@pytest.mark.parametrize("polls", [False, True])
def test_connection_that_ends_within_a_call_is_closed(
    run: Run, start_server: StartServer, monkeypatch: pytest.MonkeyPatch, polls: bool
):
    server = start_server()
    monkeypatch.setattr(polling, "SECONDS", 60)
    monkeypatch.setattr(polling.PollBudget, "allows", lambda *_: polls)

    async def main() -> None:
        async with Queue("jobs", url=server.url) as queue:
            await live(queue)
            (idle,) = (await queue._executor.connected()).connection_pool._available_connections  # type: ignore[union-attr]
            writer: Any = idle._writer
            os.kill(server.pid, signal.SIGSTOP)
            call = asyncio.create_task(queue._executor.run([Command("k", ("MGET", "k"), identity)], repeat=False))
            for _ in range(5):
                await asyncio.sleep(0)
            os.kill(server.pid, signal.SIGKILL)
            async with asyncio.timeout(10):
                with pytest.raises(errors.ServerUnreachable):
                    await call
                with contextlib.suppress(OSError):
                    await writer.wait_closed()

    run(main())


@on_both_loops
@pytest.mark.parametrize("polls", [False, True])
def test_reply_that_comes_with_the_connections_end_is_read(
    run: Run, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch, polls: bool
):
    """Otherwise a claim's messages would be leased, and nobody would know."""
    monkeypatch.setattr(polling, "SECONDS", 60)
    monkeypatch.setattr(polling.PollBudget, "allows", lambda *_: polls)

    async def main() -> None:
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            pool: Any = (await queue._executor.connected()).connection_pool  # type: ignore[union-attr]
            stream: FastStream = pool._available_connections[0].fast_stream
            call = asyncio.create_task(stream.exchange(b"", [identity, identity], polling.PollBudget()))
            await asyncio.sleep(0)
            stream._stream.feed_data(b":1\r\n:2\r\n")
            stream._stream.feed_eof()
            assert await call == [1, 2]
            assert not stream.is_usable

    run(main())


@on_both_loops
def test_long_reply_is_read_in_order_by_the_call_and_its_event_loop(
    run: Run, redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(polling, "SECONDS", 60)
    monkeypatch.setattr(polling.PollBudget, "allows", lambda *_: True)
    value = b"".join(b"%07d" % number for number in range(60_000))
    redis_client.set("long", value)

    async def main() -> None:
        async with Queue("jobs", url=redis_server.url) as queue:
            await live(queue)
            for _ in range(20):
                assert await queue._executor.run([Command("long", ("MGET", "long"), identity)]) == [[value]]

    run(main())
