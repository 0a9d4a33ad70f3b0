"""A server with TLS, whose certificate is signed by the test's own authority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from delayq import Consumer, Queue, aio
from delayq.errors import ServerUnreachable
from tests.harness.servers import RedisServer, free_port
from tests.harness.tls import behind_tls, certify


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The certificate of the authority that signed the server's, stored beside it."""
    return certify(tmp_path)


@pytest.fixture(params=["front", pytest.param("server", marks=pytest.mark.full)])
def address(request: pytest.FixtureRequest, start_server: Callable[..., RedisServer], authority: Path) -> Iterator[str]:
    """The URL of a server behind a TLS proxy, and of one that speaks TLS itself: Debian's."""
    files = authority.parent
    if request.param == "front":
        server = start_server(config={"requirepass": "s3cret"})
        with behind_tls(server.socket, files) as port:
            yield f"rediss://:s3cret@127.0.0.1:{port}/0"
    else:
        port = free_port()
        names = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.pem"}
        settings = {f"tls-{name}-file": str(files / file) for name, file in names.items()}
        settings |= {"tls-port": str(port), "tls-auth-clients": "no", "requirepass": "s3cret"}
        start_server("7.0", config=settings)
        yield f"rediss://:s3cret@127.0.0.1:{port}/0"


def test_messages_live_their_whole_life_behind_tls(address: str, authority: Path) -> None:
    with Queue("safe", url=f"{address}?ssl_ca_certs={authority}") as queue:
        queue.send("x", delay=0.05)
        assert Consumer(queue, lambda _: None).run(max_messages=1) == 1
        assert queue.stats().acked == 1


def test_port_without_tls_is_reported_at_the_first_try(start_server: Callable[..., RedisServer]) -> None:
    server = start_server(port=True)
    url = f"{server.url.replace('redis:', 'rediss:')}?socket_timeout=0.2&socket_connect_timeout=0.2"
    with server.client() as client:
        before = client.info("stats")["total_connections_received"]
        with Queue("safe", url=url) as queue, pytest.raises(ServerUnreachable) as refusal:
            queue.send("x")
        assert client.info("stats")["total_connections_received"] == before + 1
    assert "does not answer TLS: use redis:// for a port without TLS, or the port for TLS" in str(refusal.value)


@pytest.mark.parametrize("api", ["blocking", "aio"])
def test_port_with_tls_is_reported_to_a_client_without(address: str, api: str) -> None:
    url = address.replace("rediss:", "redis:")

    def stats() -> object:
        return asyncio.run(aio.Queue("a", url=url).stats()) if api == "aio" else Queue("a", url=url).stats()

    with pytest.raises(ServerUnreachable, match="a port that expects TLS needs rediss://"):
        stats()


def test_server_with_an_unknown_authority_is_refused_without_showing_the_password(address: str) -> None:
    with Queue("safe", url=address) as queue, pytest.raises(ServerUnreachable, match="certificate") as refusal:
        queue.send("x")
    assert "s3cret" not in str(refusal.value)
