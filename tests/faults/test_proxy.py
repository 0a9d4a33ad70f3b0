"""The proxy itself: what reached the server and the client when a connection was cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from delayq import Queue
from tests.harness.proxy import Cut, Proxy, Way
from tests.harness.servers import PATIENT, RedisServer
from tests.harness.waiting import eventually


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.socket) as proxy:
        yield proxy


def talk(proxy: Proxy, *commands: str) -> bytes:
    """Send commands in one packet; return everything received until the connection closes."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENT["socket_timeout"])
        client.connect(proxy.url.removeprefix("unix://"))
        words: list[Any] = [tuple(command.split()) for command in commands]
        client.sendall(b"".join(map(hiredis.pack_command, words)))
        received = b""
        while data := client.recv(100):
            received += data
        return received


@pytest.mark.parametrize(
    ("way", "received", "ran"),
    [
        ("before", b"+OK\r\n", []),
        ("after", b"+OK\r\n", ["a"]),
        ("within", b"+OK\r\n$1\r", ["a"]),
        ("deaf", b"+OK\r\n", ["a", "b"]),
    ],
)
def test_connection_is_cut_at_the_second_of_three_commands(
    proxy: Proxy, redis_client: redis.Redis, way: Way, received: bytes, ran: list[str]
) -> None:
    redis_client.mset({"a": "1", "b": "1"})
    proxy.decide = lambda name: Cut(way) if name == "GETDEL" else None
    assert talk(proxy, "SET c 1", "GETDEL a", "DEL b") == received
    assert [name for name in ("a", "b") if not redis_client.exists(name)] == ran
    assert proxy.cuts == 1


@pytest.mark.full
def test_connection_without_a_cut_passes_everything_on(proxy: Proxy) -> None:
    value = b"x" * 3_000_000
    with redis.Redis.from_url(proxy.url, **PATIENT) as client:
        pipe = client.pipeline(transaction=False).set("k", value)
        for _ in range(50):
            pipe.get("k")
        assert pipe.execute() == [True, *[value] * 50]
    assert proxy.passed[-51:] == ["SET", *["GET"] * 50]


def test_commands_are_recognised_by_name(proxy: Proxy) -> None:
    with Queue("jobs", url=proxy.url) as queue:
        queue.send("x")
        queue.receive()
    assert {"CLIENT SETNAME", "INFO", "open_queue", "send", "ready_to_unack", "MGET"} <= set(proxy.passed)


def test_permanent_cut_closes_all_connections_until_it_is_repaired(proxy: Proxy) -> None:
    never = Retry(NoBackoff(), 0)
    options: dict[str, Any] = PATIENT | {"retry": never}
    with redis.Redis.from_url(proxy.url, **options) as one, redis.Redis.from_url(proxy.url, **options) as other:
        assert one.ping()
        assert other.ping()
        proxy.decide = lambda name: Cut("after", for_good=True) if name == "INCRBY" else None
        for client in (one, other, one):
            with pytest.raises(redis.ConnectionError):
                client.incr("k")
        proxy.decide = lambda _: None
        proxy.mend()
        assert [client.incr("k") for client in (one, other)] == [2, 3]


def test_blocking_client_is_cut_while_it_waits(proxy: Proxy, redis_client: redis.Redis) -> None:
    proxy.decide = lambda name: Cut("after") if name == "BLPOP" else None
    assert talk(proxy, "BLPOP list 0") == b""
    assert eventually(lambda: redis_client.info("clients")["blocked_clients"] == 0)
