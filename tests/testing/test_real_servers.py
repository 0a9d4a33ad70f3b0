"""While queues are in memory, everything else that would use a real server raises instead, and says what it is."""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import re
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fakeredis
import httpx
import pytest
from click.testing import CliRunner
from delayq.cli.app import main

import delayq
from delayq import Queue, Topic, aio
from delayq.errors import InvalidInput, ServerUnreachable
from delayq.metrics import Metrics
from delayq.testing import RealServerUsed, assert_sent, in_memory
from delayq.testing import aio as testing_aio
from delayq.web import app
from tests.harness.servers import RedisServer
from tests.testing.conftest import NOWHERE
from tests.testing.test_plugin import run_pytest

pytestmark = pytest.mark.same_on_all_servers

HOUR = 3600


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Counts the connections to the server at DELAYQ_URL, which never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        monkeypatch.setenv("DELAYQ_URL", f"redis://127.0.0.1:{listening.getsockname()[1]}/0?socket_timeout=0.1")

        def count() -> int:
            accepted = 0
            while True:
                try:
                    listening.accept()[0].close()
                except BlockingIOError:
                    return accepted
                accepted += 1

        yield count


OTHERS = {"close", "handler", "batch_handler", "task", "cron", "execute", "group", "feed"}
"""Methods that do not call the server, or that `entries` calls."""


def calls_of(subject: Any) -> dict[str, Callable[[], Any]]:
    """Return every public method of a queue or topic that needs no argument, or that one example suffices for."""
    examples: dict[str, Any] = {"payload": "x", "payloads": ["x"], "messages": ["x"], "id": "a", "name": "a"}
    found: dict[str, Callable[[], Any]] = {}
    for name, method in inspect.getmembers(subject, callable):
        if name.startswith("_") or name in OTHERS:
            continue
        required = [
            each.name
            for each in inspect.signature(method).parameters.values()
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD and each.kind is not each.VAR_POSITIONAL
        ]
        if set(required) <= set(examples):
            arguments = {each: examples[each] for each in required}
            found[f"{type(subject).__name__}.{name}"] = functools.partial(method, **arguments)
    return found


def entries(api: Any, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return a call for each way from one of the two APIs to a server."""
    audit, orders = api.Queue("audit"), api.Topic("orders")
    audit.handler(print)
    making = orders.group("billing", create=False)
    group = asyncio.run(making) if inspect.iscoroutine(making) else making
    far = api.Queue("audit", horizon=HOUR, lake=str(folder))
    return (
        calls_of(audit)
        | calls_of(audit.dead)
        | calls_of(audit.schedules)
        | calls_of(audit.events)
        | calls_of(orders)
        | calls_of(group)
        | {
            "queues": api.queues,
            "consumer": api.Consumer(audit).run,
            "consumer of two": api.Consumer([audit, api.Queue("other")], print).start,
            "group": lambda: orders.group("billing"),
            "topic consumer": api.TopicConsumer(group, print).drain,
            "send to the lake": lambda: far.send("x", delay=2 * HOUR),
            "send with an option": lambda: audit.send("x", headers={"a": 1}),
        }
    )


async def awaited(call: Callable[[], Any]) -> Any:
    made = call()
    if hasattr(made, "__aiter__"):
        return [each async for each in made]
    return await made if inspect.isawaitable(made) else made


def refusal(call: Callable[[], Any]) -> str:
    try:
        made = asyncio.run(awaited(call))
        if inspect.isgenerator(made) or isinstance(made, Iterator):
            list(made)
    except RealServerUsed as error:
        return str(error)
    except InvalidInput:
        return "refused"  # the example does not suffice; it is checked before anything else
    except Exception as error:  # noqa: BLE001  # the test shows it
        return repr(error)
    return "nothing was raised"


@pytest.mark.parametrize("api", [delayq, aio], ids=["sync", "async"])
def test_everything_that_would_connect_raises_and_names_itself(api: Any, connections, tmp_path: Path):
    calls = entries(api, tmp_path / "lake")
    with in_memory(delayq.Queue("mail", url=NOWHERE)):
        said = {name: refusal(call) for name, call in calls.items()}
    expected = re.compile(r"(queue audit|topic orders|delayq\.queues\(\)) would use a real server while .*real=")
    unnamed = {name: text for name, text in said.items() if text != "refused" and not expected.match(text)}
    assert not unnamed
    assert len([text for text in said.values() if text != "refused"]) > 50
    assert connections() == 0
    assert not (tmp_path / "lake").exists()


def test_dashboard_commands_and_metrics_raise_too(connections, caplog: pytest.LogCaptureFixture):
    async def look() -> int:
        dashboard = app()
        transport = httpx.ASGITransport(dashboard, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as browser:
            answer = await browser.get("/")
        await dashboard.close()
        return answer.status_code

    with in_memory():
        status = asyncio.run(look())
        assert b'delayq_up{queue="audit"} 0.0' in Metrics([Queue("audit")]).exposition().body
        result = CliRunner().invoke(main, ["stats", "audit"])  # it changes the logging
    assert connections() == 0
    assert status == 500
    assert "the command line would use a real server" in str(result.exception)
    assert "queue audit would use a real server" in caplog.text


def test_connected_queue_is_refused_in_threads_and_forked_processes_and_works_again_later(redis_server: RedisServer):
    with Queue("audit", url=redis_server.url) as audit:
        audit.send("before")

        def refused() -> bool:
            with pytest.raises(RealServerUsed, match="queue audit"):
                audit.send("x")
            return True

        with in_memory(Queue("mail", url=NOWHERE)), ThreadPoolExecutor(1) as pool:
            assert pool.submit(refused).result()
            child = os.fork()
            if child == 0:
                os._exit(0 if refused() else 1)
            assert os.waitpid(child, 0)[1] == 0
        audit.send("after")
        assert audit.stats().sent == 2


def test_allowed_queues_use_their_server(redis_server: RedisServer):
    with Queue("audit", url=redis_server.url) as audit, Topic("audit", url=redis_server.url) as other:
        with in_memory(real=[Queue("audit")]), in_memory():  # one created elsewhere has the same name
            audit.send("x")
            with pytest.raises(RealServerUsed, match="topic audit"):
                other.publish("x")
        with in_memory(real=True):
            other.publish("x")
            assert delayq.queues(url=redis_server.url) == ["audit"]
        assert audit.stats().sent == other.length() == 1


def test_async_block_allows_and_forbids_too(redis_server: RedisServer):
    async def send() -> None:
        async with aio.Queue("audit", url=redis_server.url) as audit:
            async with testing_aio.in_memory(real=[audit]):
                await audit.send("x")
            async with testing_aio.in_memory():
                with pytest.raises(RealServerUsed, match="queue audit"):
                    await audit.send("x")
            assert (await audit.stats()).sent == 1

    asyncio.run(send())


def test_block_that_fails_to_begin_forbids_nothing():
    with pytest.raises(InvalidInput, match="got 'mail'"):
        in_memory(real=["mail"]).__enter__()  # type: ignore[list-item]
    with pytest.raises(ServerUnreachable):
        Queue("audit", url=NOWHERE).send("x")


def test_clients_of_fakeredis_are_in_memory():
    with in_memory(), fakeredis.FakeRedis() as client:
        queue = Queue("audit", redis=client)
        queue.send("x")
        assert_sent(queue, "x")


USER = """
import pytest
from delayq import Queue
from delayq.testing import RealServerUsed, in_memory

audit = Queue("audit", url="redis://127.0.0.1:1/0")

def test_forgotten():
    with pytest.raises(RealServerUsed, match="queue audit"):
        audit.send("x")

def test_in_memory(delayq_clock):
    delayq_clock.add(audit)
    audit.send("x")

def test_real():
    with in_memory(real=[audit]), pytest.raises(ConnectionError):
        audit.send("x")
"""


@pytest.mark.parametrize("is_in_file", [True, False], ids=["ini", "flag"])
def test_option_of_pytest_forbids_real_servers_in_all_tests(tmp_path: Path, is_in_file: bool):
    (tmp_path / "test_user.py").write_text(USER)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\ndelayq_forbid_servers = {is_in_file}\n")
    done = run_pytest(tmp_path, *([] if is_in_file else ["--delayq-forbid-servers"]))
    assert "3 passed" in done.stdout, done.stdout + done.stderr
