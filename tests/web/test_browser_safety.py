"""Safety in a real browser: user markup stays text, other sites change nothing, and viewers have no buttons."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import quote

import pytest
from playwright.sync_api import Dialog, Page, expect

from delayq import Queue, Topic
from delayq.web import User
from tests.harness.servers import RedisServer
from tests.web.conftest import Screen, Serve

pytestmark = pytest.mark.full

EVIL = "<img src=x onerror=alert(1)><svg onload=alert(2)>/'\"?%"
NAME = quote(EVIL.replace("%", "%25").replace("/", "%2F"))

SAME = ("span=", "before=", "sort=")
"""Query parameters of links to pages that are already open, in another order or at another time."""


@pytest.fixture
def evil(redis_server: RedisServer) -> Iterator[Queue]:
    """A queue and a topic in which every text that a user can choose is markup."""
    with Queue(EVIL, url=redis_server.url) as queue, Topic(EVIL, url=redis_server.url) as topic:
        queue.configure(events=True)
        for id in (EVIL, f"{EVIL} again"):
            queue.send({EVIL: EVIL}, id=id, headers={EVIL: EVIL})
        queue.receive(1)[0].reject(EVIL, error=EVIL)
        queue.receive(1)[0].nack(delay=3600, error=EVIL)
        queue.schedules.add(EVIL, "every 1h", {EVIL: EVIL})
        topic.publish({EVIL: EVIL})
        topic.group(EVIL, start="0").poll(EVIL)
        yield queue


def test_user_markup_is_shown_as_text_on_every_page(serve: Serve, evil: Queue, screen: Screen):
    page, dialogs = screen.page, list[str]()

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(serve())
    seen = set[str]()
    left = {page.url}
    while left:  # with all pages that its links lead to
        url = left.pop()
        seen.add(url)
        page.goto(url)
        expect(page.locator("h1")).to_have_count(1)
        assert page.locator("main img, main svg[onload], main [onerror]").count() == 0, url
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, url
        left |= links(page) - seen
    assert len(seen) > 12  # the pages of its queue, of its messages, of its topic and of the server
    assert dialogs == []
    assert [each for each in screen.complaints if "404" not in each] == []
    assert evil.stats().inside == 3


def links(page: Page) -> set[str]:
    pages = page.locator("a[href]:not([download], [type='application/json'])")
    found: list[str] = pages.evaluate_all("all => all.map((each) => each.href.split('#')[0])")
    return {each for each in found if not any(part in each for part in SAME)}


def test_forms_on_another_site_change_nothing(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", id="one", delay=3600)
    base, page = serve(), screen.page
    page.goto(f"{base}/main/queues/emails")  # the victim has a session here
    token = page.locator("input[name=csrf]").first.input_value()
    fields = {"csrf": token, "act": "cancel", "ids": "one", "state": "pending", "once": "1"}  # it even knows the token
    hidden = "".join(f'<input type="hidden" name="{name}" value="{value}">' for name, value in fields.items())
    forms = "".join(
        f'<form method="post" action="{base}/main/queues/emails/{each}">{hidden}<button>{each}</button></form>'
        for each in ("pause", "confirm", "run", "examine")
    )
    with another_site(f"<!doctype html>{forms}") as site:
        for each in ("pause", "confirm", "run", "examine"):
            page.goto(site)
            page.get_by_role("button", name=each).click()
            expect(page.get_by_text("comes from another site")).to_be_visible()
    assert (queue.stats().pending, queue.stats().paused_since) == (1, None)
    page.goto(f"{base}/main/jobs")
    expect(page.get_by_text("No jobs since the dashboard started")).to_be_visible()


@contextmanager
def another_site(page: str) -> Iterator[str]:
    """Serve one page at its own address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_viewer_sees_no_button_that_acts(serve: Serve, evil: Queue, screen: Screen):
    page, base = screen.page, serve(login=lambda _: User("ann", "viewer"))
    queue, topic = f"queues/{NAME}", f"topics/{NAME}/groups/{NAME}"
    tabs = [f"{queue}/messages", f"{queue}/messages?state=dead", f"{queue}/dead", f"{queue}/schedules"]
    for path in [queue, *tabs, f"{queue}/messages/{NAME}", f"{queue}/messages/{NAME}/edit", topic, "server"]:
        answer = page.goto(f"{base}/main/{path}")
        assert answer is not None, path
        assert answer.status == 200, path
        expect(page.get_by_text("viewer")).to_be_visible()
        expect(page.locator("form[method=post], input[type=checkbox]")).to_have_count(0)
        buttons = {each for each in page.get_by_role("button").all_inner_texts() if not each.startswith("Copy the ")}
        assert buttons <= {"Open", "Search", "Count"}, path
    assert evil.stats().inside == 3
