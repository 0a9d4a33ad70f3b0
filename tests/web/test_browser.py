"""The overview in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

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
