"""Odd request targets on all routes, sent to a real server: no spelling of a path gives anybody more than its route.

Each route is asked for by each spelling of `SPELLINGS`, as a stranger with the cookie and the token of the login page,
as a viewer, as an operator of a read-only dashboard and as an operator.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from http.cookies import SimpleCookie
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from delayq import Outgoing, Queue
from delayq.web import Dashboard, Users, app, user_line
from delayq.web.api.operation import ApiRoute
from delayq.web.routes import Page
from tests.harness.servers import RedisServer
from tests.harness.web.api import BODIES, STEPS, stocked_with
from tests.harness.web.raw_client import Answer, RawClient
from tests.harness.web.serving import served
from tests.web.conftest import OWN, token_on

pytestmark = pytest.mark.usefixtures("cheap_passwords", "unhurried")

HIDDEN = "not-in-any-target"
"""The name of a queue and the payload of a message: answers to strangers never have it."""

SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda path: path,
    "slash at the end": lambda path: f"{path}/",
    "two slashes": lambda path: f"/{path}",
    "slash in it twice": lambda path: path.replace("/", "//"),
    "first slash quoted": lambda path: f"%2F{path[1:]}",
    "first slash quoted after a slash": lambda path: f"/%2f{path[1:]}",
    "all slashes quoted": lambda path: "/" + path[1:].replace("/", "%2F"),
    "all slashes quoted twice": lambda path: "/" + path[1:].replace("/", "%252F"),
    "every character quoted": lambda path: "".join(f"%{ord(each):02X}" if each != "/" else each for each in path),
    "upper case": str.upper,
    "dot": lambda path: f"/.{path}",
    "dots": lambda path: f"/x/..{path}",
    "dots quoted": lambda path: f"/x/%2e%2E{path}",
    "dots and slash quoted": lambda path: f"/x/..%2f{path[1:]}",
    "below a file": lambda path: f"/static{path}",
    "up from a file": lambda path: f"/static/..{path}",
    "up from a file, quoted": lambda path: f"/static/%2e%2e{path}",
    "up from a file, slash quoted": lambda path: f"/static/..%2f{path[1:]}",
    "up from a file, backslash": lambda path: f"/static/..\\{path[1:]}",
    "below a file after a newline": lambda path: f"/static/%0A{path}",
    "file quoted, newline": lambda path: f"%2Fstatic%2F%0A{path}",
    "file quoted after a slash, newline": lambda path: f"/%2Fstatic%2F%0A{path}",
    "file quoted": lambda path: f"%2Fstatic%2F{path}",
    "below a style": lambda path: f"/static/style.css{path}",
    "below the login": lambda path: f"/login{path}",
    "up from the login": lambda path: f"/login/..{path}",
    "login quoted, newline": lambda path: f"%2Flogin%0A{path}",
    "login, newline": lambda path: f"/login%0A{path}",
    "login, parameter": lambda path: f"/login;{path}",
    "login as the query": lambda path: f"{path}?/../login",
    "login as the fragment": lambda path: f"{path}#/login",
    "newline at the end": lambda path: f"{path}%0A",
    "carriage return at the end": lambda path: f"{path}%0D",
    "NUL at the end": lambda path: f"{path}%00",
    "NUL and a style": lambda path: f"{path}%00.css",
    "NUL first": lambda path: f"/%00{path}",
    "delete": lambda path: f"{path}%7F",
    "next line": lambda path: f"{path}%C2%85",
    "space at the end": lambda path: f"{path}%20",
    "tab first": lambda path: f"/%09{path}",
    "semicolon": lambda path: f"{path};x=1",
    "style at the end": lambda path: f"{path}/style.css",
    "backslashes": lambda path: path.replace("/", "\\"),
    "backslashes quoted": lambda path: path.replace("/", "%5C"),
    "overlong slash": lambda path: f"/%C0%AF{path[1:]}",
    "longer overlong slash": lambda path: f"/static%E0%80%AF..%E0%80%AF{path[1:]}",
    "overlong dots": lambda path: f"/static/%C0%AE%C0%AE{path}",
    "wide slash": lambda path: f"/static%EF%BC%8F..{path}",
    "escape of another language": lambda path: f"/static%u002f..{path}",
    "half an escape": lambda path: f"{path}%2",
    "no escape": lambda path: f"{path}%",
    "not UTF-8": lambda path: f"/%FF{path}",
    "raw byte": lambda path: f"/\xff{path}",
    "absolute": lambda path: f"http://127.0.0.1{path}",
    "absolute, file first": lambda path: f"http://127.0.0.1/static/..{path}",
    "absolute, another host": lambda path: f"http://login/static{path}",
    "no slash": lambda path: path[1:],
    "star": lambda path: f"*{path}",
    "authority": lambda path: f"//login{path}",
}
SOME = ["as it is", "slash at the end", "two slashes", "all slashes quoted", "every character quoted"]
SOME += ["up from a file, slash quoted", "file quoted, newline", "file quoted after a slash, newline", "login, newline"]
SOME += ["below the login", "newline at the end", "NUL and a style", "overlong slash", "absolute, file first"]

ROUTES = [each for each in app("redis://127.0.0.1:1").routes if isinstance(each, Page)]
FILES = {each.read_bytes() for each in files("delayq.web").joinpath("static").iterdir()}
SETUPS = [f"{parser}{around}" for parser in ("own", "httptools") for around in ("", " behind a proxy", " mounted")]
"""The dashboard's own server with h11, or uvicorn with httptools; and where the dashboard is."""


class Place(NamedTuple):
    """Where a dashboard is served.

    Attributes:
        prefix: what the targets begin with.
    """

    address: str
    prefix: str


def path_of(route: Page) -> str:
    """Return a path of a route on which there is something."""
    steps = STEPS | {"letter": "0.1-1", "file": "style.css"}
    return "".join(
        f"/{quote(steps[each[1:].partition(':')[0].rstrip('}')], safe='') if each.startswith('{') else each}"
        for each in route.path[1:].split("/")
    )


def body_of(route: Page, token: str) -> tuple[bytes, dict[str, str]]:
    """Return a body that the route accepts, and headers with the token."""
    if isinstance(route, ApiRoute):
        body = BODIES.get(route.operation.name, {})
        return msgspec.json.encode(body), {"content_type": "application/json", "x_csrf_token": token}
    fields = {
        "csrf": token,
        "act": "cancel",
        "all": "1",
        "state": "pending",
        "once": "1",
        "consumer": "x",
        "idle": "0s",
    }
    fields |= {"payload": "1", "kind": "json", "headers": "{}", "name": "emails", "when": "@daily", "secret": "x"}
    return urlencode(fields).encode(), {"content_type": "application/x-www-form-urlencoded"}


@pytest.fixture
def stocked(queue: Queue, redis_server: RedisServer) -> Iterator[Queue]:
    with stocked_with(queue, redis_server.url), Queue(HIDDEN, url=redis_server.url) as other:
        other.send_many([Outgoing(HIDDEN, id="hidden", delay=3600)])
        yield queue


@pytest.fixture
def lines() -> list[Any]:
    return []


Start = Callable[..., Place]


@asynccontextmanager
async def closing(dashboard: Dashboard) -> AsyncIterator[None]:
    yield
    await dashboard.close()


FOURTH = (pytest.mark.full, pytest.mark.by_lot(4))


@pytest.fixture(params=["some", *(pytest.param(each, marks=FOURTH) for each in ("some httptools mounted", *SETUPS))])
def setup(request: pytest.FixtureRequest) -> str:
    """One of `SETUPS`; with "some", it is a quick test with a few spellings."""
    return str(request.param)


@pytest.fixture
def spellings(setup: str) -> list[Callable[[str], str]]:
    return [SPELLINGS[each] for each in (SOME if setup.startswith("some") else SPELLINGS)]


@pytest.fixture
def start(setup: str, redis_server: RedisServer, lines: list[Any]) -> Iterator[Start]:
    parser, _, around = (setup.removeprefix("some").strip() or "own").partition(" ")
    parser = "" if parser == "own" else parser
    with ExitStack() as stack:

        def make(**options: Any) -> Place:
            users = Users([user_line("ann", "operator", "ann's password"), user_line("bob", "viewer", "bob's own")])
            dashboard = app({"main": redis_server.url}, login=users, audit=lines.append, **options)
            if around == "mounted":
                outer = Starlette(routes=[Mount("/ops/queues", dashboard)], lifespan=lambda _: closing(dashboard))
                return Place(stack.enter_context(served(outer, parser=parser)), "/ops/queues")
            root = "/queues" if around else ""
            return Place(stack.enter_context(served(dashboard, root, parser)), "")

        yield make


def session(client: RawClient, place: Place, name: str = "", secret: str = "") -> str:
    """Open the login page, and log in if there is a name; return the token of the session's forms."""
    keep(client, form := client.ask("GET", f"{place.prefix}/login"))
    token = token_on(form.body.decode())
    if name:
        fields = urlencode({"csrf": token, "name": name, "secret": secret}).encode()
        entered = client.ask("POST", f"{place.prefix}/login", fields, content_type="application/x-www-form-urlencoded")
        assert entered.status == 303
        keep(client, entered)
        keep(client, page := client.ask("GET", f"{place.prefix}/main/queues/emails/messages"))
        token = token_on(page.body.decode()) or token_on(client.ask("GET", f"{place.prefix}/").body.decode())
    assert token
    return token


def keep(client: RawClient, answer: Answer) -> None:
    """Send the cookie of an answer from now on."""
    for morsel in SimpleCookie(answer.headers.get("set-cookie", "")).values():
        client.headers |= {"cookie": f"{morsel.key}={morsel.value}", "sec-fetch-site": OWN["sec-fetch-site"]}


def is_open(answer: Answer) -> bool:
    """Whether this is what anybody may see: the login form or a file."""
    return answer.body in FILES or b'name="secret"' in answer.body


def snapshot(queue: Queue) -> dict[bytes, bytes | None]:
    client = queue._executor.client
    return {key: client.dump(key) for key in client.scan_iter()}


def test_stranger_sees_and_changes_nothing_by_any_spelling(
    start: Start, stocked: Queue, lines: list[Any], spellings: list[Callable[[str], str]]
):
    place, before = start(), snapshot(stocked)
    with RawClient(place.address) as client:
        token = session(client, place)
        for route in ROUTES:
            body, headers = body_of(route, token)
            for spell in spellings:
                target = place.prefix + spell(path_of(route))
                for answer in (client.ask("GET", target), client.ask("POST", target, body, **headers)):
                    assert HIDDEN.encode() not in answer.body, target
                    assert answer.status in {303, 307, 400, 401, 403, 404, 405} or is_open(answer), (target, answer)
    assert snapshot(stocked) == before
    assert [each for each in lines if each["outcome"] == "done"] == []


@pytest.mark.parametrize("who", ["viewer", "operator of a read-only dashboard"])
def test_viewer_changes_nothing_by_any_spelling(
    start: Start, stocked: Queue, lines: list[Any], spellings: list[Callable[[str], str]], who: str
):
    place, before = start(read_only=who != "viewer"), snapshot(stocked)
    with RawClient(place.address) as client:
        token = session(client, place, *(("bob", "bob's own") if who == "viewer" else ("ann", "ann's password")))
        del lines[:]
        for route in ROUTES:
            if route.path in {"/login", "/logout"}:
                continue  # they end the session
            body, headers = body_of(route, token)
            for spell in spellings:
                target = place.prefix + spell(path_of(route))
                answer = client.ask("POST", target, body, **headers)
                assert answer.status in {307, 400, 403, 404, 405}, (target, answer)
        assert client.ask("GET", f"{place.prefix}/main/queues/emails/messages").status == 200  # still logged in
    assert snapshot(stocked) == before
    assert [each for each in lines if each["outcome"] == "done"] == []


def test_operator_meets_no_internal_error_by_any_spelling(
    start: Start, stocked: Queue, spellings: list[Callable[[str], str]]
):
    place, seen = start(interval=60.0), set[int]()
    with RawClient(place.address) as client:
        session(client, place, "ann", "ann's password")
        for route in ROUTES:
            if route.path.endswith("/live"):
                continue  # a stream
            for spell in spellings:
                answer = client.ask("GET", place.prefix + spell(path_of(route)))
                assert answer.status < 500, (route.path, answer)
                seen.add(answer.status)
    assert {200, 400, 404} <= seen
    assert stocked.stats().missing == 0


def test_every_route_has_a_right():
    routes = app("redis://127.0.0.1:1").routes
    assert all(isinstance(each, Page) for each in routes)
    assert not [each for each in ROUTES if re.search(r"[^/]\{|\}[^/]", each.path)]  # path_of relies on it
