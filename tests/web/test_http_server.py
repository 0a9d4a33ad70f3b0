"""The dashboard's HTTP server: connections that wait are limited, and those that do not are left alone."""

from __future__ import annotations

import contextlib
import logging
import random
import re
import socket
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from uvicorn.protocols.http import flow_control, h11_impl

from delayq import Queue, http_connections
from delayq.http_connections import SECONDS, Turn
from delayq.metrics import MetricsServer, Response
from delayq.web import Token
from tests.harness.hostile import mutated
from tests.harness.strangers import TOKEN, WAITING, WRONG
from tests.web.conftest import Follow, Serve

GET = b"GET /login HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"

Connect = Callable[[], socket.socket]


@pytest.fixture
def connect(serve: Serve) -> Iterator[Connect]:
    """``connect()``: a connection of a stranger to one dashboard."""
    address = urlsplit(serve(login=Token(TOKEN)))
    made: list[socket.socket] = []

    def client() -> socket.socket:
        made.append(socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=60))
        return made[-1]

    yield client
    for each in made:
        each.close()


def answer(client: socket.socket) -> int:
    """Read an answer whole; return its status."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(1)
    left = int(re.findall(rb"(?i)content-length: (\d+)", head)[0])
    while left:
        left -= len(client.recv(left))
    return int(head.split()[1])


def test_connection_can_be_used_again_also_after_a_body_that_nobody_wanted(connect: Connect):
    client = connect()
    for _ in range(3):
        client.sendall(GET)
        assert answer(client) == 200
        client.sendall(POST % 1000)
        assert answer(client) == 401
        client.sendall(b"x" * 1000)


def test_body_that_nobody_wants_is_not_read_for_long(connect: Connect, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(SECONDS, Turn.REST, 0.5)
    client = connect()
    client.sendall(POST % 4_000_000)
    assert answer(client) == 401
    with contextlib.suppress(ConnectionError):  # the time may be over before all is sent
        client.sendall(b"x" * 1_000_000)
        assert client.recv(1) == b""


def test_requests_before_the_answer_to_the_first_are_not_answered(connect: Connect):
    client = connect()
    client.sendall(GET * 20)
    assert answer(client) == 200
    with contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


BODY = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n%s\r\n%s"


@pytest.mark.parametrize("is_in_one_packet", [True, False])
@pytest.mark.parametrize(
    "body",
    [
        BODY % (b"", b"abcd"),
        BODY % (b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        (BODY % (b"Transfer-Encoding: chunked\r\n", b"4\r\nabcd\r\n0\r\n\r\n")).replace(b"Content-Length: 4\r\n", b""),
    ],
    ids=["length", "both", "chunked"],
)
def test_request_after_a_body_is_answered_only_on_its_own(connect: Connect, body: bytes, is_in_one_packet: bool):
    """A proxy that sees the end of the body elsewhere must not get an answer for a request that it has not sent."""
    client = connect()
    if is_in_one_packet:
        client.sendall(body + GET)
    else:
        client.sendall(body)
    assert answer(client) == 403
    if not is_in_one_packet and b"Length" not in body:
        client.sendall(GET)
        assert answer(client) == 200
    elif is_in_one_packet or b"Transfer" in body:
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


@pytest.mark.parametrize("path", [b"/login", b"/nowhere"])
@pytest.mark.parametrize("size", [b"1", b"0001", b"1;", b"1;a=b", b"1 "])
def test_body_in_tiny_chunks_is_cut_off(connect: Connect, path: bytes, size: bytes):
    client = connect()
    head = b"POST %s HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" % path
    received = b""
    with contextlib.suppress(ConnectionError):
        client.sendall(head + (size + b"\r\nx\r\n") * 2000 + b"0\r\n\r\n" + GET)
        while part := client.recv(65536):
            received += part
    assert b" 200 OK" not in received
    client = connect()
    client.sendall(head + (b"20" + size[1:].lstrip(b"01") + b"\r\n" + b"x" * 32 + b"\r\n") * 100 + b"0\r\n\r\n")
    assert answer(client) in {401, 403}


def test_head_may_arrive_in_any_parts(connect: Connect):
    client = connect()
    for cut in range(1, len(GET)):
        client.sendall(GET[:cut])
        client.sendall(GET[cut:])
        assert answer(client) == 200


def test_body_that_arrives_slowly_is_cut_off_unless_it_makes_progress(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_connections, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(http_connections, "PROGRESS_BYTES", 10)
    monkeypatch.setitem(SECONDS, Turn.BODY, 4.0)
    steady, stalled = connect(), connect()
    for client in (steady, stalled):
        client.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000\r\n")
        client.sendall(b"Content-Type: application/x-www-form-urlencoded\r\n\r\n" + b"x" * 1000)
    stalled.settimeout(0.05)
    sent = 1000
    while True:
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            assert stalled.recv(1) == b""
            break
        steady.sendall(b"x" * 20)
        sent += 20
    steady.sendall(b"x" * (8_000 - sent))
    assert answer(steady) == 403


def test_stream_is_not_cut_off(serve: Serve, follow: Follow, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_connections, "LOOK_SECONDS", 0.01)
    queue.send("first", delay=60)
    url = serve()
    page = follow(f"{url}/main/queues/emails/live")
    assert page.has_seen('?state=pending">1<')
    for turn in SECONDS:
        monkeypatch.setitem(SECONDS, turn, 0.2)
    address = urlsplit(url)
    with socket.create_connection((str(address.hostname), int(address.port or 0)), timeout=60) as doomed:
        assert doomed.recv(1) == b""
    queue.send("second", delay=60)
    assert page.has_seen('?state=pending">2<')


def test_error_of_a_page_is_logged_once(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise ValueError("a bug")

    url = serve(login=Token(TOKEN))
    monkeypatch.setattr(Token, "asks_name", property(broken))
    with caplog.at_level(logging.INFO):
        assert httpx.get(f"{url}/login", timeout=60).status_code == 500
    assert sum("a bug" in str(each.exc_info) for each in caplog.records) == 1


def test_nothing_that_a_client_sends_is_an_error_of_the_server(connect: Connect, caplog: pytest.LogCaptureFixture):
    dice = random.Random(17)
    known = [each.replace(b"%s", b"/login")[:2000] for each in (*WAITING.values(), *WRONG.values())]
    with (
        MetricsServer("127.0.0.1", 0, {"/": lambda _: Response(200, b"")}) as metrics,
        caplog.at_level(logging.WARNING),
    ):
        for number in range(400):
            sent = mutated(dice.choice(known) + dice.choice(known), dice)
            client = connect() if number % 2 else socket.create_connection((metrics.host, metrics.port))
            with client:
                client.sendall(sent[: len(sent) // 2])
                client.sendall(sent[len(sent) // 2 :])
        client = connect()
        client.sendall(GET)
        assert answer(client) == 200
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


def test_uvicorn_has_the_names_that_the_limits_use():
    """If this fails, uvicorn has renamed something that `delayq.web.http_server.DashboardConnection` uses."""
    protocol, cycle, flow = h11_impl.H11Protocol, h11_impl.RequestResponseCycle, flow_control.FlowControl
    used = {
        protocol.__init__: {"conn", "cycle", "flow", "headers", "transport"},
        cycle.__init__: {"response_complete", "keep_alive"},
        flow.__init__: {"read_paused"},
    }
    missing = {function.__qualname__: names - {*function.__code__.co_names} for function, names in used.items()}
    missing["methods"] = {"data_received", "on_response_complete", "send_400_response", "shutdown"} - {*vars(protocol)}
    assert {place: names for place, names in missing.items() if names} == {}
