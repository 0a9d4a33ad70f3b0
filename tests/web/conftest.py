"""Fixtures: the dashboard in this process, or served to a browser.

enter      ``enter(**options)``: a client of a dashboard of the shared server, without a network
serve      ``serve(**options)``: the same on a real uvicorn; returns its address
browser    Chromium, one per module; without it, tests are skipped, or fail if DELAYQ_REQUIRE_BROWSER is set
follow     ``follow(url)``: a reader of the live stream there
screen     ``screen.page``, a page with a fresh profile, and ``screen.complaints``, the errors in its console
queue      the queue emails

cheap_passwords    passwords are hashed in no time
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from starlette.types import ASGIApp

from delayq import Queue
from delayq.web import Dashboard, app, passwords
from tests.harness.servers import RedisServer
from tests.harness.web.following import Follower
from tests.harness.web.serving import chromium, opened, served

PATIENCE_MS = 60_000  # for a browser on a busy machine

expect.set_options(timeout=PATIENCE_MS)

Enter = Callable[..., "Client"]
Serve = Callable[..., str]
Follow = Callable[..., Follower]

OWN = {"origin": "http://127.0.0.1", "sec-fetch-site": "same-origin"}
"""The headers that a browser sends with the dashboard's own forms."""


class Client:
    """Sends requests to an application in this process, like a browser with cookies that follows no redirects."""

    def __init__(self, application: ASGIApp, base_url: str = "http://127.0.0.1") -> None:
        self._runner = asyncio.Runner()
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url=base_url)
        self.cookies = self._client.cookies

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._runner.run(self._client.request(method, path, **options))

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def close(self, dashboard: Dashboard) -> None:
        self._runner.run(dashboard.close())
        self._runner.run(self._client.aclose())
        self._runner.close()


@pytest.fixture
def answered_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer the form of an action once its job is over, however slow the machine is."""
    monkeypatch.setattr("delayq.web.request_jobs.QUICK_SECONDS", 60.0)


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no server count as silent because the machine is busy."""
    monkeypatch.setattr("delayq.web.servers.SILENCE_SECONDS", 60.0)
    monkeypatch.setattr("delayq.web.pages.overview.OTHERS_SECONDS", 60.0)


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=redis_server.url, shards=None) as queue:
        yield queue


@pytest.fixture
def cheap_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make hashes of new passwords cheap; the hash itself holds its costs."""
    monkeypatch.setattr(passwords, "_N", 2)


@pytest.fixture
def enter(redis_server: RedisServer, unhurried: None) -> Iterator[Enter]:  # noqa: ARG001
    """A dashboard of the server ``main``, unless other servers are given."""
    with ExitStack() as stack:

        def make(
            around: Callable[[Dashboard], ASGIApp] = lambda each: each,
            base_url: str = "http://127.0.0.1",
            **options: Any,
        ) -> Client:
            known: dict[str, Any] = {"servers": {"main": redis_server.url}}
            dashboard = app(**known | options)
            client = Client(around(dashboard), base_url)
            stack.callback(client.close, dashboard)
            return client

        yield make


@pytest.fixture
def serve(redis_server: RedisServer, unhurried: None) -> Iterator[Serve]:  # noqa: ARG001
    with ExitStack() as stack:

        def start(**options: Any) -> str:
            known: dict[str, Any] = {"servers": {"main": redis_server.url}, "interval": 0.05}
            return stack.enter_context(served(app(**known | options)))

        yield start


@pytest.fixture
def follow() -> Iterator[Follow]:
    with ExitStack() as stack:
        yield lambda *where: stack.enter_context(Follower(*where))


@pytest.fixture(scope="module")  # while it runs, this thread can have no other event loop
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        missing = "no chromium on the path: on Debian, apt install chromium"
        if os.environ.get("DELAYQ_REQUIRE_BROWSER"):
            pytest.fail(missing)
        pytest.skip(missing)
    with opened(path) as browser:
        yield browser


class Screen(NamedTuple):
    """A page of the browser, and the errors in its console."""

    page: Page
    complaints: list[str]


@pytest.fixture
def screen(browser: Browser) -> Iterator[Screen]:
    with contextlib.closing(browser.new_context()) as context:
        context.set_default_timeout(PATIENCE_MS)
        page, complaints = context.new_page(), list[str]()
        page.on("console", lambda said: complaints.append(said.text) if said.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        yield Screen(page, complaints)


def token_on(text: str) -> str:
    """Return the token of a page's form."""
    return text.partition('name="csrf" value="')[2].partition('"')[0]


def log_in(client: Client, secret: str, name: str = "") -> Any:
    """Fill in and send the login form."""
    token = token_on(client.get("/login").text)
    return client.post("/login", data={"csrf": token, "name": name, "secret": secret}, headers=OWN)


def act(client: Client, path: str, **fields: str) -> Any:
    """Send a form as a page of the dashboard would."""
    token = token_on(client.get("/main/queues/emails").text)
    return client.post(path, data={"csrf": token} | fields, headers=OWN)
