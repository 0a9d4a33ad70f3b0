"""Each page in a real browser, on live queues: light, dark, wide and narrow; a test finds pages missing here."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from delayq import Queue
from delayq.web import Token
from tests.harness.servers import RedisServer
from tests.harness.web.scene import Scene
from tests.web.conftest import Screen, Serve
from tests.web.test_every_route import ROUTES

pytestmark = pytest.mark.full

SECRET = "a token that is long enough"
EMAILS, INVOICES = "/main/queues/emails", "/main/queues/invoices"
PATHS = {
    "login": "/login",
    "overview": "/",
    "queues": "/main/queues?name=e",
    "queue": EMAILS,
    "messages": f"{EMAILS}/messages?state=pending",
    "message": f"{INVOICES}/messages/ID",
    "editor": f"{INVOICES}/messages/ID/edit",
    "dead": f"{INVOICES}/dead",
    "schedules": f"{EMAILS}/schedules",
    "schedule-form": f"{EMAILS}/new-schedule",
    "schedule-removal": f"{EMAILS}/schedules/digest/remove",
    "server-schedules": "/main/schedules",
    "server-consumers": "/main/consumers",
    "consumers": f"{EMAILS}/consumers",
    "topics": "/main/topics",
    "topic": "/main/topics/orders",
    "group": "/main/topics/orders/groups/shipping",
    "dead_records": "/main/topics/orders/groups/shipping/dead",
    "dead_record": "",  # the first one in the list
    "server": "/main/server",
    "configuration-form": f"{EMAILS}/configure",
    "compose": f"{EMAILS}/send?copy=email-later-1",
    "job": "",  # the job of an action
    "jobs": "/main/jobs",
    "api": "/api/v1/",
}
PARTS = {"matches", "live", "queues-live", "queue-live", "follow", "found", "life", "charts", "limits"}
"""Routes that pages request by themselves: they are not pages."""
FOR_PROGRAMS = {"metrics", "openapi", "payload"}
FORMER = {"former_jobs", "former_job"}
"""Routes that redirect to a page, since its path was another one."""

ANOTHER_FORM = {  # variants of a page: a query or a path
    "queue-day": f"{EMAILS}?span=day",
    "queue-in-trouble": "/main/queues/webhooks",
    "messages-dead": f"{INVOICES}/messages?state=dead",
    "messages-found": f"{INVOICES}/messages?state=dead&where=error&text=503",
    "message-pending": f"{EMAILS}/messages/email-later-1",
}
WIDTHS = {"wide": 1200, "narrow": 360}  # pixels; each page is opened at the last one
HEIGHT = 740
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
KEPT = {("wide", "light"), ("narrow", "dark")}  # screenshots: each width and each scheme once
FILES = {"static"}  # what the pages load

CONTRAST = """() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = (c) => c.slice(0, 3).map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => { for (; node; node = node.parentElement) {
    const c = rgb(getComputedStyle(node).backgroundColor); if (c[3] !== 0) return c; } return [255, 255, 255]; };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
  while (texts.nextNode()) {
    const node = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !node.checkVisibility()) continue;
    const [a, b] = [rgb(getComputedStyle(node).color), behind(node)].map(light).sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) found.push(texts.currentNode.data.trim());
  }
  return found;
}"""
"""Returns the texts with too little contrast: less than WCAG's 4.5 to 1."""


def test_every_get_route_is_opened_here_or_part_of_a_page():
    assert {route.name for route in ROUTES if "GET" in (route.methods or ())} == set(
        PATHS
    ) | PARTS | FOR_PROGRAMS | FORMER | FILES


def test_every_page_is_complete_and_loads_nothing_external(serve: Serve, redis_server: RedisServer, screen: Screen):
    """A page is opened once for all looks, since they differ only by stylesheet."""
    Scene(redis_server.url).play()
    page, asked = screen.page, set[str]()
    page.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    page.emulate_media(reduced_motion="reduce")  # otherwise colours change with a transition
    page.set_viewport_size({"width": WIDTHS["narrow"], "height": HEIGHT})
    base = serve(login=Token(SECRET))
    for name in opened(page, base, redis_server.url):
        expect(page.locator("h1")).to_have_count(1)
        for width, pixels in WIDTHS.items():
            page.set_viewport_size({"width": pixels, "height": HEIGHT})
            assert page.evaluate("document.documentElement.scrollWidth") <= pixels, (name, width)
            for scheme in SCHEMES:
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate(CONTRAST) == [], (name, width, scheme)
                if (width, scheme) in KEPT:
                    keep(page, f"{name}-{width}-{scheme}")
    assert screen.complaints == []  # this includes reports of the content security policy
    assert asked == {urlsplit(base).netloc}


def test_logout_redirects_to_login(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", delay=3600)
    page = screen.page
    page.goto(serve(login=Token(SECRET)))
    page.get_by_label("Token").fill(SECRET)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name=queue.name).click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    page.go_back()
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def opened(page: Page, base: str, url: str) -> Iterator[str]:
    """Open one page after another, and yield its name."""
    with Queue("invoices", url=url) as queue:
        dead = queue.peek("dead", limit=1)[0].id
    page.goto(f"{base}/login")
    yield "login"
    page.get_by_label("Token").fill(SECRET)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    page.goto(f"{base}{INVOICES}/dead")
    page.get_by_role("button", name="Requeue…").first.click()
    yield "confirm"
    page.get_by_role("button", name="Dry run").click()
    expect(page.get_by_text("done", exact=True)).to_be_visible()
    yield "job"
    for name, path in (PATHS | ANOTHER_FORM).items():
        if name == "dead_record":
            page.get_by_role("rowheader").get_by_role("link").first.click()
            page.wait_for_url("**/letters/*")
            yield name
        elif name not in {"login", "job"}:
            answer = page.goto(base + path.replace("ID", dead))
            assert answer is not None, name
            assert answer.status == 200, name
            yield name


def keep(page: Page, name: str) -> None:
    """Save a screenshot of the whole page if requested."""
    if folder := os.environ.get("DELAYQ_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
