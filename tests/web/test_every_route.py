"""Checks of every route, including new ones: no user text is markup, and not everybody may change something.

The API has its own tests of all operations: `test_api` and `test_api_acts`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from starlette.routing import Mount, Route

from delayq import NewRecord, Outgoing, Queue, Topic
from delayq.web import Token, User, app
from delayq.web.api.operation import ApiRoute
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter, token_on

EVIL = "<script>alert(1)</script>/\"'?#%&"
STEPS = {
    "server": "main",
    "queue": "emails",
    "id": EVIL,
    "schedule": EVIL,
    "topic": "orders",
    "group": EVIL,
    "letter": "0.1-1",
    "job": "none",
    "file": "style.css",
}
ROUTES = [
    route for route in app("redis://127.0.0.1:1").routes if isinstance(route, Route) and not isinstance(route, ApiRoute)
]
POSTS = sorted(route.name for route in ROUTES if "POST" in (route.methods or ()))
OPEN = {"enter", "logout"}  # they change nothing on a server
FILES = {"payload"}
"""Routes of files that are sent unchanged: they are not pages."""
PAGES = sorted(
    route.name for route in ROUTES if "GET" in (route.methods or ()) and not re.search("live$|stream", route.path)
)


@pytest.fixture
def stocked(queue: Queue, redis_server: RedisServer) -> Iterator[Queue]:
    """A queue and a topic in which every text that a user can choose is evil."""
    queue.configure(events=True)
    queue.send_many([Outgoing({EVIL: EVIL}, id=EVIL, headers={EVIL: EVIL}), Outgoing(EVIL, id="other", delay=60)])
    (message,) = queue.receive(1)
    message.reject(EVIL, error=EVIL)
    queue.schedules.add(EVIL, "every 1h", {EVIL: EVIL})
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group(EVIL, start="0")
        topic.publish_many([NewRecord({EVIL: EVIL}), NewRecord(EVIL)])
        (record,) = group.poll(EVIL, count=1)
        group.bury(record, EVIL, EVIL, EVIL)
        group.poll(EVIL)
        yield queue


def path_of(client_app: Any, name: str) -> str:
    route = next(each for each in ROUTES if each.name == name)
    return quoted_path(client_app.url_path_for(name, **{each: STEPS[each] for each in route.param_convertors}))


def quoted_path(path: str) -> str:
    return re.sub(r"[^A-Za-z0-9/._~-]", lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), path)


def snapshot(queue: Queue) -> dict[bytes, bytes | None]:
    """Return all data on the server except consumers."""
    client = queue._executor.client
    return {key: client.dump(key) for key in client.scan_iter()}


@pytest.mark.parametrize("query", ["", "?state=dead&where=error&text=%3Cscript%3E", "?state=dead"])
@pytest.mark.parametrize("name", PAGES)
def test_no_page_renders_user_text_as_markup(enter: Enter, stocked: Queue, name: str, query: str):
    dashboard = app("redis://127.0.0.1:1")
    answer = enter().get(path_of(dashboard, name) + query)
    assert answer.status_code < 500
    is_file = answer.headers.get("content-disposition", "").startswith("attachment")
    assert is_file == (name in FILES)
    is_text = is_file or answer.headers.get("content-type", "").startswith(
        "text/plain"
    )  # metrics: browsers do not render them as markup
    assert is_text or "<script>alert" not in answer.text
    assert is_text or "\\n" not in answer.text  # a line end within a text of our own
    assert stocked.stats().dead == 1


@pytest.mark.parametrize("name", PAGES)
def test_every_form_leads_to_a_route(enter: Enter, stocked: Queue, name: str):
    answer = enter().get(path_of(app("redis://127.0.0.1:1"), name))
    actions = re.findall(r' (?:form)?action="([^"]*)"', answer.text)
    paths = [urlsplit(html.unescape(each)).path for each in actions]
    assert [each for each in paths if each and not any(route.path_regex.match(each) for route in ROUTES)] == []
    assert stocked.stats().dead == 1


@pytest.mark.parametrize("name", [each for each in POSTS if each not in OPEN])
def test_viewer_changes_nothing(enter: Enter, stocked: Queue, name: str):
    dashboard, before = app("redis://127.0.0.1:1"), snapshot(stocked)
    viewers: list[dict[str, Any]] = [
        {"read_only": True},
        {"login": lambda _: User("ann", "viewer")},
        {"login": lambda _: None},
        {"login": Token("a token that is long enough")},
    ]
    for options in viewers:
        client = enter(**options)
        answer = client.post(path_of(dashboard, name), data=_fields(client), headers=OWN)
        assert answer.status_code in {401, 403}
    assert snapshot(stocked) == before


@pytest.mark.parametrize("name", PAGES)
def test_viewer_sees_no_form_that_acts(enter: Enter, stocked: Queue, name: str):
    dashboard = app("redis://127.0.0.1:1")
    answer = enter(read_only=True).get(path_of(dashboard, name))
    assert 'method="post"' not in answer.text
    assert stocked.stats().dead == 1


@pytest.mark.parametrize("name", [each for each in POSTS if each not in OPEN])
def test_forged_form_changes_nothing(enter: Enter, stocked: Queue, name: str):
    dashboard, before, client = app("redis://127.0.0.1:1"), snapshot(stocked), enter()
    fields = _fields(client)
    path = path_of(dashboard, name)
    for forged in (fields | {"csrf": ""}, fields | {"csrf": "0" * 64}):
        assert client.post(path, data=forged, headers=OWN).status_code == 403
    assert client.post(path, data=fields, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.get(path).status_code in {200, 404, 405}  # a page with the same path, which changes nothing
    assert snapshot(stocked) == before


def _fields(client: Client) -> dict[str, str]:
    """Return fields that all forms accept, with the token."""
    token = token_on(client.get("/main/queues/emails/messages").text)
    meant = {"act": "cancel", "all": "1", "state": "dead", "once": "1", "consumer": "x", "idle": "0s"}
    return {"csrf": token, "died": "1", "kind": "json", "payload": "1", "headers": "{}"} | meant


FOREIGN = [
    *("\udcff", "\udced\udca0\udc80", "a\nb", "..", ".", " ", "%", "{", "#", "x" * 1000, "10" * 400, "-1", "\u202e")
]
"""Names that no client of delayq gives: not UTF-8, with a control character, too long, …"""


@pytest.mark.parametrize("route", app("redis://127.0.0.1:1").routes, ids=lambda each: each.name)
def test_no_name_in_a_path_makes_the_dashboard_fail(enter: Enter, stocked: Queue, route: Any):
    client = enter(interval=60.0)
    fields = _fields(client)
    for parameter in route.param_convertors:
        for name in FOREIGN:
            steps = {each: STEPS[each] for each in route.param_convertors} | {parameter: name}
            path = route.url_path_for(route.name, **steps)
            path = quote(path, safe="/%") if isinstance(route, ApiRoute) else quoted_path(path)
            if isinstance(route, ApiRoute):
                answer = client.request(route.method, path, json={}, headers=OWN | {"x-csrf-token": fields["csrf"]})
            else:
                answer = client.request(route.method, path, data=fields, headers=OWN)
            assert answer.status_code < 500, (parameter, name)
    assert stocked.stats().missing == 0


def test_every_route_has_a_name_of_its_own():
    names = [route.name for route in app("redis://127.0.0.1:1").routes if isinstance(route, Route | Mount)]
    assert len(set(names)) == len(names)


def test_this_file_knows_every_post():
    """If you add a POST, add it here, so that the checks of this file cover it."""
    assert {*POSTS} >= {
        "run",
        "confirm",
        "edit",
        "pause",
        "resume",
        "schedule",
        "claim",
        "examine",
        "stop",
        "send",
        "add-schedule",
        "configure",
    }
