"""A real server behind TLS, with a certificate of the test's own authority."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from delayq import Consumer, Queue
from delayq.errors import ServerUnreachable
from tests.harness.servers import RedisServer, free_port


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    """The certificate of the authority that has signed the server's, which stands beside it."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    return tmp_path / "ca.pem"


@pytest.fixture
def address(start_server: Callable[..., RedisServer], authority: Path) -> str:
    port = free_port()
    files = {"cert": "server.pem", "key": "server.key", "ca-cert": "ca.pem"}
    settings = {f"tls-{name}-file": str(authority.parent / file) for name, file in files.items()}
    start_server("7.0", config=settings | {"tls-port": str(port), "tls-auth-clients": "no", "requirepass": "s3cret"})
    return f"rediss://:s3cret@127.0.0.1:{port}/0"


def test_life_of_a_message_behind_tls(address: str, authority: Path) -> None:
    with Queue("safe", url=f"{address}?ssl_ca_certs={authority}") as queue:
        queue.send("x", delay=0.05)
        assert Consumer(queue, lambda _: None).run(max_messages=1) == 1
        assert queue.stats().acked == 1


def test_server_whose_authority_is_unknown_is_refused_without_its_password_in_the_text(address: str) -> None:
    with Queue("safe", url=address) as queue, pytest.raises(ServerUnreachable, match="certificate") as refusal:
        queue.send("x")
    assert "s3cret" not in str(refusal.value)
