"""The dashboard in another application, and behind a proxy that strips a prefix."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from delayq import Queue
from delayq.web import Token, User
from tests.web.conftest import OWN, Enter, token_on

TOKEN = "a token that is long enough"


def links(page: str) -> set[str]:
    """The links and files of a page."""
    found = re.findall(r'(?:href|src|action|data-next|data-stream)="([^"#?]*)', page)
    return {each for each in found if each}


def walk(client, prefix: str) -> None:
    """Log in, view all pages and pause a queue, as a user does under a prefix."""
    assert client.get(f"{prefix}/").headers["location"] == f"{prefix}/login?next=%2F"
    form = client.get(f"{prefix}/login?next=%2F").text
    fields = {"csrf": token_on(form), "secret": TOKEN}
    entered = client.post(f"{prefix}/login?next=%2F", data=fields, headers=OWN)
    assert (entered.status_code, entered.headers["location"]) == (303, f"{prefix}/")
    assert f"; Path={prefix};" in entered.headers["set-cookie"]
    page = client.get(f"{prefix}/main/queues/emails").text
    for path in links(form) | links(client.get(f"{prefix}/").text) | links(page):
        assert path.startswith(f"{prefix}/"), path
    for path in links(page):
        if "/static/" in path:
            assert client.get(path).status_code == 200
    paused = client.post(f"{prefix}/main/queues/emails/pause", data={"csrf": token_on(page)}, headers=OWN)
    assert paused.headers["location"] == f"{prefix}/main/queues/emails"


def test_dashboard_works_under_the_prefix_of_the_application_around_it(enter: Enter, queue: Queue):
    queue.send("hello")
    client = enter(around=lambda inner: Starlette(routes=[Mount("/admin/queues", inner)]), login=Token(TOKEN))
    walk(client, "/admin/queues")
    assert queue.stats().paused_since is not None


def test_dashboard_works_behind_a_proxy_with_a_prefix(enter: Enter, queue: Queue):
    queue.send("hello")

    def proxied(inner: ASGIApp) -> ASGIApp:
        async def ask(scope: Scope, receive: Receive, send: Send) -> None:
            await inner({**scope, "root_path": "/queues"}, receive, send)  # as uvicorn does with --root-path

        return ask

    walk(enter(around=proxied, login=Token(TOKEN)), "/queues")
    assert queue.stats().paused_since is not None


def test_path_parameters_of_the_application_around_it_are_for_its_login_only(enter: Enter, queue: Queue):
    queue.send("hello")
    lines: list[Any] = []

    def known(request: Request) -> User | None:
        return User("ann") if request.path_params == {"server": "east", "event": "a secret"} else None

    client = enter(
        around=lambda inner: Starlette(routes=[Mount("/{server}/{event}/queues", inner)]),
        login=known,
        audit=lines.append,
    )
    prefix = "/east/a secret/queues"
    assert "/east/a%20secret/queues/east/" not in client.get(f"{prefix}/").text
    emails = f"{prefix}/main/queues/emails"
    paused = client.post(f"{emails}/pause", data={"csrf": token_on(client.get(emails).text)}, headers=OWN)
    assert (paused.status_code, paused.headers["location"]) == (303, emails.replace(" ", "%20"))
    answer = client.post(f"{emails}/confirm", data={"csrf": token_on(client.get(emails).text), "act": "x"}, headers=OWN)
    assert answer.status_code == 400
    assert [sorted(line) for line in lines] == [["action", "outcome", "queue", "server", "who"]] * 2
    assert [line["server"] for line in lines] == ["main"] * 2


@pytest.mark.parametrize("tenant", ["a b", "x; Domain=localhost; z=", "é", "日本", "a,b=c", "%41", 'q"', "a:b@c"])
def test_cookie_is_for_the_path_where_the_dashboard_is_mounted_and_has_no_other_attributes(enter: Enter, tenant: str):
    client = enter(around=lambda inner: Starlette(routes=[Mount("/t/{tenant}/q", inner)]), login=Token(TOKEN))
    prefix = f"/t/{quote(tenant, safe='')}/q"
    form = client.get(f"{prefix}/login")
    path, *attributes = form.headers["set-cookie"].split("; ")[1:]
    assert unquote(path) == f"Path=/t/{tenant}/q"
    assert attributes == ["HttpOnly", "SameSite=Lax"]
    assert f'href="{path.removeprefix("Path=")}/static/' in form.text


def test_dashboards_of_one_host_do_not_take_each_others_cookies(enter: Enter):
    """Browsers send a cookie of the path / to all paths."""
    names = set[str]()
    for root in ("", "/q", "/q/r"):
        client = enter(around=lambda inner, root=root: Starlette(routes=[Mount(root, inner)]), login=Token(TOKEN))
        names.add(client.get(f"{root}/login").headers["set-cookie"].partition("=")[0])
    assert len(names) == 3


def test_control_character_in_the_path_around_is_refused(enter: Enter):
    client = enter(around=lambda inner: Starlette(routes=[Mount("/t/{tenant}/q", inner)]), login=Token(TOKEN))
    refused = client.get("/t/%0d%0aX-Injected:%201/q/login")
    assert (refused.status_code, "control character" in refused.text) == (400, True)
