"""Strangers cannot stop the HTTP servers of delayq: they are real processes that may open few files."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.harness.servers import RedisServer
from tests.harness.strangers import COMMANDS, WAITING, WRONG, Served, crowd, reset, serving
from tests.harness.waiting import eventually

SECONDS = 8.0
"""Much more than an answer takes, and less than the limits of most connections. Those that wait for a next request or
send the rest of a body end after five seconds; tests of the limiter show that it makes room at once."""
MEGABYTE = 1 << 20
GROWTH = 60 * MEGABYTE
THREADS = 64

Serve = Callable[..., Served]
every_server = pytest.mark.parametrize("name", COMMANDS)
some_servers = pytest.mark.parametrize(
    "name", [name if name == "exporter" else pytest.param(name, marks=pytest.mark.full) for name in COMMANDS]
)


@pytest.fixture
def serve(redis_server: RedisServer, tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda name, files=256: stack.enter_context(serving(name, redis_server.url, tmp_path, files))


def check(served: Served, before: int, held: AbstractContextManager[object]) -> None:
    """Check that a stranger's connections cost others nothing."""
    with held:
        assert served.status(60) == 200  # the crowd still arrives: the kernel drops more, asked again after 1, 3, 7 s
        for _ in range(3):
            assert served.status(SECONDS) == 200
        assert served.memory() - before < GROWTH
        assert served.threads() < THREADS
    assert served.status(SECONDS) == 200
    assert served.memory() - before < GROWTH
    assert "Traceback" not in served.log
    assert len(served.log) < MEGABYTE


@every_server
def test_others_get_an_answer_while_strangers_hold_more_connections_than_there_are_files(serve: Serve, name: str):
    served = serve(name)
    assert served.status(60) == 200
    half, others = [WAITING["half a request"]], list(WAITING.values())
    with crowd(served, half, 300):
        check(served, served.memory(), crowd(served, others, 100))


@pytest.mark.by_lot(5)
@pytest.mark.full
@every_server
@pytest.mark.parametrize("kind", WAITING)
def test_others_get_an_answer_while_strangers_hold_a_thousand_connections(serve: Serve, name: str, kind: str):
    served = serve(name, files=1024)
    assert served.status(60) == 200
    check(served, served.memory(), crowd(served, [WAITING[kind]], 1100))


@every_server
def test_log_stays_short_when_requests_are_wrong(serve: Serve, name: str):
    served = serve(name)
    assert served.status(60) == 200
    before, lines = served.memory(), len(served.log.splitlines())
    for sent in WRONG.values():
        check(served, before, crowd(served, [sent], 20))
    logged = [line for line in served.log.splitlines()[lines:] if " audit " not in line]  # logins that were refused
    assert len(logged) < 10, logged


@pytest.mark.by_lot(5)
@every_server
@pytest.mark.parametrize(
    "kind",
    [
        "half a body",
        *(pytest.param(kind, marks=pytest.mark.full) for kind in WAITING if kind != "half a body"),
    ],
)
def test_client_that_goes_away_leaves_no_traceback(serve: Serve, name: str, kind: str):
    served = serve(name)
    assert served.status(60) == 200
    for number in range(100):
        client = served.connect(WAITING[kind])
        (reset if number % 2 else type(client).close)(client)
    check(served, served.memory(), contextlib.nullcontext())


@some_servers
def test_connections_that_cannot_be_accepted_are_logged_once_a_minute(serve: Serve, name: str):
    served = serve(name, files=44)  # fewer than it accepts at once; after an error, asyncio rests for a second
    assert served.status(60) == 200
    with crowd(served, [WAITING["half a request"]], 200):
        assert served.status(60) == 200
    assert "Traceback" not in served.log
    assert served.log.count("connections not accepted") < 10, served.log


@pytest.mark.full
@every_server
def test_request_that_takes_a_byte_a_second_is_cut_off(serve: Serve, name: str):
    served = serve(name)
    slow = {kind: served.connect(sent) for kind, sent in WAITING.items() if kind != "an answered request"}

    def are_cut_off() -> bool:
        for kind, client in list(slow.items()):
            try:
                client.send(b"x")
            except BlockingIOError:
                pass
            except OSError:
                client.close()
                del slow[kind]
        time.sleep(1)  # the pace of the stranger
        return not slow

    try:
        assert eventually(are_cut_off, 120), slow
    finally:
        for client in slow.values():
            client.close()


@every_server
def test_server_stops_while_strangers_hold_connections(serve: Serve, name: str):
    served = serve(name)
    assert served.status(60) == 200
    with crowd(served, list(WAITING.values()), 40):
        assert served.status(60) == 200
        assert served.stop() == 0
    assert "Traceback" not in served.log
    assert "Cancel" not in served.log  # uvicorn waited in vain
