"""The limits of an HTTP server, on connections of a real one."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import resource
import socket
from collections.abc import Awaitable, Callable

import pytest
import structlog

from delayq import http_connections
from delayq.http_connections import SECONDS, ConnectionLimiter, LimitedConnection, Turn, host_names
from tests.harness.web.following import holds


class Connection(LimitedConnection):
    """It waits for requests of a byte, and never answers ``b``."""

    asked = False
    is_of_user = False

    def whose_turn(self) -> Turn:
        return Turn.SERVER if self.asked else Turn.READER if self.unread else Turn.REQUEST

    def take(self, data: bytes) -> None:
        self.asked = b"b" in data


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Connect = Callable[..., Awaitable[Client]]


def served(limiter: ConnectionLimiter, run: Callable[[Connect, list[Connection]], Awaitable[None]]) -> None:
    """Run a server, and clients that `run` connects to it from an address; it also gets the server's connections."""

    async def serve() -> None:
        made: list[Connection] = []

        def connection() -> Connection:
            made.append(Connection(limiter))
            return made[-1]

        server = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
        port, clients = server.sockets[0].getsockname()[1], list[Client]()

        async def connect(address: str = "127.0.0.1") -> Client:
            clients.append(await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0)))
            await holds(lambda: len(made) == len(clients) and hasattr(made[-1], "transport"))
            return clients[-1]

        async with server:
            await run(connect, made)
            limiter.close()
        for _, writer in clients:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    asyncio.run(serve())


async def ended(client: Client) -> bool:
    try:
        return await client[0].read(1) == b""
    except ConnectionResetError:
        return True


def test_connection_that_waits_longest_makes_room_for_a_new_one():
    async def run(connect: Connect, made: list[Connection]) -> None:
        working = await connect()
        working[1].write(b"b")
        await holds(lambda: made[0].asked)
        first, second = await connect(), await connect()
        await connect()
        assert await ended(first)
        await connect()
        assert await ended(second)
        assert made[0].transport.is_closing() is False

    served(ConnectionLimiter(3, shared=True), run)


def test_new_connection_is_refused_when_the_server_works_for_all_others():
    async def run(connect: Connect, made: list[Connection]) -> None:
        for _ in range(2):
            (await connect())[1].write(b"b")
            await holds(lambda: made[-1].asked)
        assert await ended(await connect())

    served(ConnectionLimiter(2, shared=True), run)


def test_one_address_has_at_most_half_of_the_connections():
    async def run(connect: Connect, made: list[Connection]) -> None:  # noqa: ARG001
        other = await connect("127.0.0.2")
        first = await connect()
        await connect()
        await connect()
        assert await ended(first)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(other[0].read(1), 0.2)

    served(ConnectionLimiter(4), run)


def test_answers_that_nobody_reads_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_connections, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(http_connections, "MOST_HELD_BYTES", 20_000_000)

    async def run(connect: Connect, made: list[Connection]) -> None:
        for _ in range(4):
            await connect()
            made[-1].transport.write(b"x" * 15_000_000)
        await holds(lambda: sum(each.unread for each in made) <= 20_000_000)
        assert any(each.unread for each in made)  # not all were closed

    served(ConnectionLimiter(10, shared=True), run)


@pytest.mark.parametrize("turn", [Turn.REQUEST, Turn.READER])
def test_client_whose_time_is_over_is_disconnected(monkeypatch: pytest.MonkeyPatch, turn: Turn):
    monkeypatch.setattr(http_connections, "LOOK_SECONDS", 0.01)
    monkeypatch.setitem(SECONDS, turn, 0.1)

    async def run(connect: Connect, made: list[Connection]) -> None:
        client = await connect()
        if turn is Turn.READER:
            made[0].transport.write(b"x" * 15_000_000)
        else:
            client[1].write(b"a")  # a byte does not give it more time
        await holds(made[0].transport.is_closing)

    served(ConnectionLimiter(10), run)


def test_packets_are_sent_at_once():
    async def run(connect: Connect, made: list[Connection]) -> None:
        await connect()
        assert made[0].transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    served(ConnectionLimiter(10), run)


def test_half_of_the_files_is_left_for_other_uses():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, before[1]))
    try:
        assert ConnectionLimiter(1000).most == 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_stranger_makes_room_before_a_user_who_has_waited_longer():
    async def run(connect: Connect, made: list[Connection]) -> None:
        await connect()
        made[0].is_of_user = True
        stranger = await connect()
        await connect()
        assert await ended(stranger)
        assert made[0].transport.is_closing() is False

    served(ConnectionLimiter(2, shared=True), run)


def test_connection_that_comes_after_the_end_is_closed():
    async def run(connect: Connect, made: list[Connection]) -> None:
        made[:] = []
        limiter.close()
        assert await ended(await connect())

    limiter = ConnectionLimiter(2)
    served(limiter, run)


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock the test sets."""

    clock = 1000.0

    def time(self) -> float:
        return self.clock


def test_errors_of_accept_are_logged_once_a_minute_with_their_number():
    loop, limiter = _Loop(), ConnectionLimiter(10)
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(errno.EMFILE, "Too many files"),
    }
    with contextlib.closing(loop), structlog.testing.capture_logs() as lines:
        for _ in range(180):
            limiter.on_error(loop, context)
            loop.clock += 1
    assert [line["event"] for line in lines] == ["connections not accepted"] * 3
    assert [line["failures"] for line in lines] == [1, 60, 60]


@pytest.mark.parametrize(
    ("host", "address", "names"),
    [
        ("127.0.0.1", "127.0.0.1", {"127.0.0.1", "localhost", "[::1]"}),
        ("box", "127.0.1.1", {"127.0.0.1", "localhost", "[::1]", "box"}),
        ("0.0.0.0", "0.0.0.0", set()),
        ("::", "::", set()),
    ],
)
def test_server_on_a_loopback_address_answers_only_to_its_names(host: str, address: str, names: set[str]):
    assert set(host_names(host, [], address)) == names
    assert set(host_names(host, ["ops.example.org"], address)) == names | {"ops.example.org"}
