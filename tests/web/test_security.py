"""The headers of answers, and refused requests."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from delayq import Queue
from delayq.web import Dashboard, Token, app
from delayq.web.api.operation import ApiRoute
from tests.web.conftest import OWN, Enter, token_on

PAGES = sorted(
    route.path.replace("{server:name}", "main").replace("{queue:name}", "emails")
    for route in app("redis://127.0.0.1:1").routes
    if isinstance(route, Route)
    and not isinstance(route, ApiRoute)
    and "GET" in (route.methods or set())
    and not route.path.endswith("/live")
)

FOLDER = files("delayq.web").joinpath("static")
STATIC = ("/static/style.css", "/static/live.js")


@pytest.mark.parametrize("path", [*PAGES, *STATIC, "/nowhere", "/main/queues/none", "/api/v1/servers", "/api/none"])
def test_every_answer_forbids_foreign_scripts_and_frames(enter: Enter, queue: Queue, path: str):
    queue.send("hello")
    headers = enter().get(path).headers
    policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
    assert (policy["frame-ancestors"], policy["base-uri"], headers["x-frame-options"]) == ("'none'", "'none'", "DENY")
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
    assert headers["cache-control"] == ("no-cache" if path in STATIC else "no-store")


def test_static_file_with_its_digest_is_cached_for_good_and_sets_no_cookie(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter()
    linked = set(re.findall(r'(?:href|src)="(/static/[^"#]+)', client.get("/").text))
    assert {each.partition("?")[0] for each in linked} == {f"/static/{each.name}" for each in FOLDER.iterdir()}
    client.cookies.clear()
    for file in linked:
        answer = client.get(file)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert "set-cookie" not in answer.headers
    stale = client.get("/static/style.css?0123456789ab")  # another version, as on a page that was loaded before
    assert (stale.headers["cache-control"], "set-cookie" in stale.headers) == ("no-cache", False)


def test_pages_files_and_streams_are_compressed(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter()
    for path in ("/", "/static/style.css", "/static/live.js"):
        headers = client.get(path).headers
        assert (headers["content-encoding"], headers["vary"]) == ("gzip", "Accept-Encoding"), path
        assert "content-encoding" not in client.get(path, headers={"accept-encoding": "identity"}).headers


def test_form_token_differs_on_each_page_so_that_compression_reveals_nothing(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter()
    tokens = {token_on(client.get("/main/queues/emails").text) for _ in range(3)}
    assert len(tokens) == 3
    for token in tokens:
        assert client.post("/main/queues/emails/pause", data={"csrf": token}, headers=OWN).status_code == 303


def test_internal_error_has_the_headers_but_no_details(enter: Enter, monkeypatch: pytest.MonkeyPatch):
    def broken(*_: object, **__: object) -> Any:
        raise RuntimeError("what nobody should read")

    monkeypatch.setattr("delayq.web.poller.ServerPoller.now", broken)
    answer = enter().get("/")
    assert answer.status_code == 500
    assert answer.headers["x-frame-options"] == "DENY"
    assert "what nobody should read" not in answer.text


FORGED: dict[str, tuple[dict[str, str], bool]] = {
    "without a token": (OWN, False),
    "from another site": (OWN | {"sec-fetch-site": "cross-site"}, True),
    "from a sister site": (OWN | {"sec-fetch-site": "same-site"}, True),
    "from an address bar": (OWN | {"sec-fetch-site": "none"}, True),
    "of another origin, from an old browser": ({"origin": "http://evil.example"}, True),
    "of another port": ({"origin": "http://127.0.0.1:81"}, True),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_request_is_refused(enter: Enter, queue: Queue, forgery: str):
    queue.send("hello")
    client = enter()
    headers, has_token = FORGED[forgery]
    token = token_on(client.get("/main/queues/emails").text)
    fields = {"csrf": token} if has_token else {}
    assert client.post("/main/queues/emails/pause", data=fields, headers=headers).status_code == 403
    assert queue.stats().paused_since is None


def test_token_of_another_session_is_refused(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter()
    token = token_on(client.get("/main/queues/emails").text)
    client.cookies.clear()
    client.get("/")
    assert client.post("/main/queues/emails/pause", data={"csrf": token}, headers=OWN).status_code == 403


def test_forged_login_is_refused(enter: Enter):
    client = enter(login=Token("a token that is long enough"))
    fields = {"secret": "a token that is long enough"}
    assert client.post("/login", data=fields, headers=OWN).status_code == 403


def test_links_do_not_act(enter: Enter, queue: Queue):
    queue.send("hello")
    assert enter().get("/main/queues/emails/pause").status_code == 405
    assert queue.stats().paused_since is None


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_refused(enter: Enter, method: str):
    assert enter().request(method, "/").status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_other_host_name_is_refused(enter: Enter, host: str):
    client = enter(hosts=["127.0.0.1", "localhost", "[::1]"])
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8700", "LOCALHOST", "[::1]:8700"])
def test_own_host_names_are_answered(enter: Enter, host: str):
    assert enter(hosts=["127.0.0.1", "localhost", "[::1]"]).get("/", headers={"host": host}).status_code == 200


def test_too_large_form_is_refused(enter: Enter):
    client = enter()
    assert client.post("/login", data={"csrf": "x" * (5 << 20)}, headers=OWN).status_code == 413


def test_form_that_needs_no_login_is_small(enter: Enter):
    client = enter(login=Token("a token that is long enough"))
    fields = {"csrf": token_on(client.get("/login").text), "secret": "x" * 8000}
    refused = client.post("/login", data=fields | {"more": "x" * 200}, headers=OWN)
    assert (refused.status_code, "larger than 8,192 bytes" in refused.text) == (413, True)
    assert client.post("/login", data=fields, headers=OWN).status_code == 403


@pytest.mark.parametrize(
    "path", ["/main/queues/emails/pause", "/logout", "/nowhere", "/api/v1/servers/main/queues/emails/pause"]
)
def test_body_of_a_stranger_is_not_read(enter: Enter, path: str):
    client = enter(login=Token("a token that is long enough"))

    async def body() -> AsyncIterator[bytes]:
        raise AssertionError("it was read")
        yield b""

    answer = client.post(path, content=body(), headers=OWN | {"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code == 401


def test_client_that_leaves_in_the_middle_of_a_form_is_audited_and_logs_no_error(
    enter: Enter, queue: Queue, caplog: pytest.LogCaptureFixture
):
    queue.send("hello")
    lines: list[Any] = []

    def leaving(inner: Dashboard) -> ASGIApp:
        async def left() -> Message:
            return {"type": "http.disconnect"}

        async def ask(scope: Scope, receive: Receive, send: Send) -> None:
            await inner(scope, left if scope["method"] == "POST" else receive, send)

        return ask

    client = enter(around=leaving, audit=lines.append)
    for path in ("/main/queues/emails/pause", "/api/v1/servers/main/queues/emails/pause"):
        headers = {"content-type": "application/json" if "api" in path else "application/x-www-form-urlencoded"}
        client.cookies.clear()  # or the API would ask for a token
        assert client.post(path, headers=headers).status_code == 400
    assert [(each["action"], each["outcome"]) for each in lines] == [
        ("pause", "refused: The request did not arrive as a whole.")
    ] * 2
    assert ([each for each in caplog.records if each.levelno >= logging.WARNING], queue.stats().paused_since) == (
        [],
        None,
    )


def test_form_with_too_many_fields_is_refused(enter: Enter):
    client = enter(login=Token("a token that is long enough"))
    fields = {"csrf": token_on(client.get("/login").text), "secret": "a token that is long enough"}
    headers = OWN | {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/login", content=f"{urlencode(fields)}{'&a=' * 1000}", headers=headers).status_code == 400
    assert client.post("/login", content=f"{urlencode(fields)}{'&a=' * 998}", headers=headers).status_code == 303
