"""The inner pages in a real browser: actions by keyboard alone, and what is live."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from delayq import Outgoing, Queue
from tests.web.conftest import Screen, Serve
from tests.web.test_actions import bury

pytestmark = pytest.mark.full


def test_messages_are_rescheduled_by_keyboard_alone(serve: Serve, queue: Queue, screen: Screen):
    queue.send_many([Outgoing(n, delay=60 + n, id=f"m{n}") for n in range(3)])
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails/messages")
    page.get_by_label("Choose m0").focus()
    page.keyboard.press("Space")
    for _ in range(2):  # its link, the next message's box
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    while page.evaluate("document.activeElement.textContent") != "Reschedule…":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Reschedule 2 messages")
    page.get_by_label("New time").focus()
    page.keyboard.type("2090-01-01T00:00Z")
    page.keyboard.press("Enter")
    expect(page.get_by_text("2 of 2 rescheduled.")).to_be_visible()
    late = [info.id for info in queue.peek("pending") if info.due_at and info.due_at.year == 2090]
    assert sorted(late) == ["m0", "m1"]
    assert screen.complaints == []


def test_redrive_is_followed_live_and_stopped(serve: Serve, queue: Queue, screen: Screen):
    bury(queue, *(f"m{n}" for n in range(200)))
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails/dead")
    page.get_by_role("button", name="Requeue…").first.click()
    page.get_by_label("Rate").fill("2/s")
    page.get_by_role("button", name="Requeue 200 messages").click()
    moved = page.locator(".outcome li").nth(1)
    expect(moved).to_have_text(re.compile(r"^([3-9]|\d\d+) are back"))  # it changes by itself
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("It was stopped")).to_be_visible()
    stats = queue.stats()
    assert stats.dead > 0
    assert stats.dead + stats.pending == 200
    assert screen.complaints == []


def test_search_goes_on_by_itself(serve: Serve, queue: Queue, screen: Screen, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.pages.messages.SEARCH_SECONDS", 1e-9)  # a step a request
    queue.send_many([Outgoing(n, delay=60 + n, id=f"m{n:03}") for n in range(600)])
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails/messages?state=pending&where=payload&text=00")
    expect(page.get_by_text("5 found among 600 of 600: that is all.")).to_be_visible()
    expect(page.get_by_role("rowheader")).to_have_text([f"m{n}00" for n in range(1, 6)])
    assert screen.complaints == []
