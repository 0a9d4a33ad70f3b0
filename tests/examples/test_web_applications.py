"""The examples of web applications answer real requests, and their consumers handle what these send."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import httpx
import pytest
import uvicorn
from werkzeug.serving import make_server

from delayq import Consumer, Queue, aio
from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT
from tests.harness.waiting import eventually

pytestmark = pytest.mark.same_on_all_servers

EXAMPLES = ROOT / "examples"
ANN = {"number": 7, "email": "ann@example.org"}


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def example(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """``example(name)``: import an example, on the test's server."""
    monkeypatch.setenv("DELAYQ_URL", redis_server.url)
    before = set(sys.modules)
    yield load
    for name in sys.modules.keys() - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(f"{EXAMPLES}{os.sep}"):
            del sys.modules[name]


@contextmanager
def requests_to(socket: Path) -> Iterator[httpx.Client]:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://web", timeout=60) as client:
        yield client


@contextmanager
def served_by_uvicorn(module: ModuleType, socket: Path) -> Iterator[httpx.Client]:
    server = uvicorn.Server(uvicorn.Config(module.app, uds=str(socket), log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert eventually(lambda: server.started)
        with requests_to(socket) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def test_fastapi_sends_from_a_route_and_waits_for_a_result(
    example: Callable[[str], ModuleType], tmp_path: Path, capfd: pytest.CaptureFixture[str], redis_server: RedisServer
):
    module = example("fastapi_app")
    with served_by_uvicorn(module, tmp_path / "s") as client:
        answers = [client.post("/users", json=ANN) for _ in range(2)]
        assert [(each.status_code, each.json()) for each in answers] == [(202, {"id": "welcome-7"})] * 2
        assert client.get("/fares/Rome").json() == {"fare": 129}
        missing = client.get("/fares/Oslo")
        assert (missing.status_code, missing.json()) == (404, {"detail": "no fare to Oslo"})
        assert client.post("/users", json={}).status_code == 422
    assert capfd.readouterr().out.count("mail to ann@example.org\n") >= 1
    with Queue("travel", url=redis_server.url) as queue:
        assert (queue.stats().inside, queue.consumers()) == (1, [])  # the dead letter of Oslo; the consumer has stopped


def test_fastapi_without_a_consumer_leaves_the_messages_to_one_apart(
    example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
):
    monkeypatch.setenv("CONSUMER", "apart")
    with served_by_uvicorn(example("fastapi_app"), tmp_path / "s") as client:
        assert client.post("/users", json=ANN).status_code == 202
    with Queue("travel", url=redis_server.url) as queue:
        assert (queue.stats().inside, queue.consumers()) == (1, [])


def test_dependency_of_fastapi_is_overridden_in_a_test(
    example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis_server: RedisServer
):
    monkeypatch.setenv("CONSUMER", "apart")
    module = example("fastapi_app")

    async def trial() -> AsyncIterator[aio.Queue]:
        async with aio.Queue("trial", url=redis_server.url) as other:
            yield other

    module.app.dependency_overrides[module.queue] = trial
    with served_by_uvicorn(module, tmp_path / "s") as client:
        assert client.post("/users", json=ANN).status_code == 202
    with Queue("trial", url=redis_server.url) as queue:
        assert queue.stats().inside == 1


def test_litestar_sends_from_a_route_and_handles_in_the_same_process(
    example: Callable[[str], ModuleType], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    with served_by_uvicorn(example("litestar_app"), tmp_path / "s") as client:
        answers = [client.post("/users", json=ANN) for _ in range(2)]
        assert [(each.status_code, each.json()) for each in answers] == [(202, {"id": "welcome-7"})] * 2
        assert client.post("/users", json={"number": "x"}).status_code == 400
        assert eventually(lambda: "mail to ann@example.org\n" in capfd.readouterr().out)


def test_flask_sends_from_a_view_and_handles_in_its_context(
    example: Callable[[str], ModuleType], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    module = example("flask_app")
    socket = tmp_path / "s"
    server = make_server(f"unix://{socket}", 0, module.app)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        with requests_to(socket) as client:
            answer = client.post("/users", json=ANN)
            assert (answer.status_code, answer.json()) == (202, {"id": "welcome-7"})
            assert client.post("/users", content=b"not JSON").status_code == 415
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert Consumer(module.mails).drain() == 1
    module.mails.close()
    assert capfd.readouterr().out == "mail to ann@example.org from shop@example.org\n"


@pytest.mark.parametrize("name", ["fastapi_app", "litestar_app", "flask_app"])
def test_outage_is_answered_with_503(
    name: str, example: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DELAYQ_URL", f"unix://{tmp_path}/nowhere?retry_timeout=0")
    monkeypatch.setenv("CONSUMER", "apart")
    module = example(name)
    if name != "flask_app":
        with served_by_uvicorn(module, tmp_path / "s") as client:
            answer = client.post("/users", json=ANN)
            status, body, headers = answer.status_code, answer.text, answer.headers
    else:
        given = module.app.test_client().post("/users", json=ANN)
        status, body, headers = given.status_code, given.text, given.headers
    assert (status, headers["Retry-After"]) == (503, "5")
    assert "check that the server is running" in body


@pytest.mark.full
@pytest.mark.parametrize(
    ("served", "consumed"),
    [
        (["uvicorn", "fastapi_app:app", "--uds"], "fastapi_app:travel"),
        (["uvicorn", "litestar_app:app", "--uds"], "litestar_app:mails"),
        (["gunicorn", "flask_app:app", "--bind"], "flask_app:mails"),
    ],
)
def test_production_runs_the_application_and_its_consumer_apart(
    served: list[str], consumed: str, redis_server: RedisServer, tmp_path: Path
):
    environment = os.environ | {"DELAYQ_URL": redis_server.url, "CONSUMER": "apart", "PYTHONUNBUFFERED": "1"}
    socket = tmp_path / "s"
    address = f"unix:{socket}" if served[0] == "gunicorn" else str(socket)
    web = subprocess.Popen([sys.executable, "-m", *served, address], cwd=EXAMPLES, env=environment)
    try:
        assert eventually(socket.exists)
        with requests_to(socket) as client:
            assert eventually(lambda: is_accepted(client))
        words = [sys.executable, "-m", "delayq.cli", "consume", consumed, "--burst"]
        done = subprocess.run(words, cwd=EXAMPLES, env=environment, capture_output=True, text=True, check=True)
    finally:
        web.send_signal(signal.SIGTERM)
        web.wait(60)
    assert done.stdout.startswith("mail to ann@example.org")


def is_accepted(client: httpx.Client) -> bool:
    try:
        return client.post("/users", json=ANN).status_code == 202
    except httpx.TransportError:
        return False
