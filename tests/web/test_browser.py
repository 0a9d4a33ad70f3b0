"""The overview in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from delayq import Queue
from tests.web.conftest import Screen, Serve

pytestmark = pytest.mark.full


def test_message_shows_up_without_a_reload_and_the_browser_complains_of_nothing(
    serve: Serve, queue: Queue, screen: Screen
):
    queue.send("hello", delay=60)
    page = screen.page
    page.goto(serve())
    pending = page.get_by_role("row", name="emails").locator("td[data-label=Pending]")
    expect(pending).to_have_text("1")
    page.get_by_role("link", name="emails").focus()
    queue.send("hello", delay=60)
    expect(pending).to_have_text("2")
    expect(page.get_by_role("link", name="emails")).to_be_focused()
    assert screen.complaints == []


def test_page_is_live_also_when_the_script_for_that_comes_late(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", delay=60)
    page = screen.page

    def hold(route: Route) -> None:
        page.wait_for_function("typeof htmx === 'object'")
        page.evaluate("new Promise((done) => setTimeout(done))")  # by then htmx has begun, if it does not wait
        route.continue_()

    page.route("**/hx-sse.js*", hold)
    page.goto(serve(), wait_until="commit")
    pending = page.get_by_role("row", name="emails").locator("td[data-label=Pending]")
    expect(pending).to_have_text("1")
    queue.send("hello", delay=60)
    expect(pending).to_have_text("2")
    assert screen.complaints == []
