"""The rights that routes declare, and what happens without one."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import Message

from delayq.web import Dashboard, Token, app
from delayq.web.routes import ACT, OPEN, Page
from tests.web.conftest import Enter, log_in
from tools import routes

TOKEN = "a token that is long enough"


def test_three_routes_are_open():
    found = [each for each in app("redis://127.0.0.1:1").routes if isinstance(each, Page) and each.right is OPEN]
    assert [(each.path, each.method) for each in found] == [
        ("/static/{file:name}", "GET"),
        ("/login", "GET"),
        ("/login", "POST"),
    ]


def test_routes_that_need_an_operator_are_the_posts_except_login_and_logout():
    pages = [each for each in app("redis://127.0.0.1:1").routes if isinstance(each, Page)]
    posts = {each.name for each in pages if each.method == "POST"}
    assert {each.name for each in pages if each.right is ACT} == posts - {"enter", "logout"}


def test_page_lists_every_route_with_its_right():
    assert routes.table() in routes.PAGE.read_text("utf-8"), "run python -m tools.routes"


@pytest.mark.parametrize("is_logged_in", [False, True])
def test_route_without_a_right_is_closed(enter: Enter, is_logged_in: bool):
    async def hello(_: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    def extended(dashboard: Dashboard) -> Dashboard:
        dashboard.router.routes[:0] = [Route("/more", hello), Mount("/below", routes=[Route("/more", hello)])]
        return dashboard

    client = enter(around=extended, login=Token(TOKEN))
    if is_logged_in:
        log_in(client, TOKEN)
    for path in ("/more", "/below/more"):
        answer = client.get(path)
        assert (answer.status_code, "declares no right" in answer.text) == (403, True)


def test_unknown_path_looks_to_strangers_like_a_known_one(enter: Enter):
    client = enter(login=Token(TOKEN))
    for method, known, unknown in (
        ("GET", "/main/queues/emails", "/main/nothing"),
        ("POST", "/main/queues/emails/pause", "/main/nothing"),
        ("GET", "/api/v1/servers", "/api/v1/nothing"),
        ("POST", "/api/v1/servers/main/queues/emails/pause", "/api/nothing"),
        ("DELETE", "/main/queues/emails", "/nothing"),
    ):
        answers = [client.request(method, path) for path in (known, unknown)]
        assert len({each.status_code for each in answers}) == 1, (known, unknown)
        assert len({each.text for each in answers}) == 1, (known, unknown)


def test_websockets_are_refused():
    dashboard, sent = app("redis://127.0.0.1:1"), list[str]()
    dashboard.router.routes.append(WebSocketRoute("/more", lambda socket: socket.accept()))

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message["type"])

    asyncio.run(dashboard({"type": "websocket", "path": "/more", "headers": []}, receive, send))
    assert sent == ["websocket.close"]
