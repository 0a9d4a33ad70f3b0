"""The dashboard with the keyboard only: every action is reachable, and the focus is always visible."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from delayq import Outgoing, Queue
from tests.web.conftest import Screen, Serve

pytestmark = pytest.mark.full

FOCUSED = "(document.activeElement.getAttribute('aria-label') || document.activeElement.textContent).trim()"
OUTLINE = "getComputedStyle(document.activeElement).outlineStyle"
MOST_STEPS = 40


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with this name has the focus; check that each focus on the way is visible."""
    for _ in range(MOST_STEPS):
        page.keyboard.press("Tab")
        assert page.evaluate(OUTLINE) != "none", page.evaluate(FOCUSED)
        if page.evaluate(FOCUSED) == name:
            return
    raise AssertionError(f"{name} is not reached by {MOST_STEPS} steps")


def test_queue_is_paused_and_message_cancelled_with_the_keyboard_only(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", id="one", delay=3600)
    page = screen.page
    page.goto(serve())
    tab_to(page, "emails")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("emails")
    tab_to(page, "Pause")
    page.keyboard.press("Enter")
    expect(page.get_by_text("emails is paused")).to_be_visible()
    assert queue.stats().paused_since is not None
    tab_to(page, "Messages 1")
    page.keyboard.press("Enter")
    expect(page.get_by_role("rowheader", name="one")).to_be_visible()
    tab_to(page, "Select one")
    page.keyboard.press("Space")
    tab_to(page, "Run now…")
    tab_to(page, "Cancel…")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Cancel 1 message")
    tab_to(page, "Cancel 1 message")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 of 1 cancelled.")).to_be_visible()
    assert (queue.stats().pending, queue.stats().cancelled) == (0, 1)
    assert screen.complaints == []


def test_first_tab_stop_skips_to_the_content(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", delay=3600)
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails/messages")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).not_to_be_in_viewport()
    page.keyboard.press("Tab")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")
    assert queue.stats().pending == 1


def test_messages_are_rescheduled_with_the_keyboard_only(serve: Serve, queue: Queue, screen: Screen):
    queue.send_many([Outgoing(n, delay=3600 + n, id=f"m{n}") for n in range(3)])
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails/messages")
    page.get_by_label("Select m0").focus()
    page.keyboard.press("Space")
    for _ in range(2):  # its link, then the next message's checkbox
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


def test_invalid_field_has_the_focus_and_keeps_its_text(serve: Serve, queue: Queue, screen: Screen):
    queue.send("x", delay=3600)
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails")
    page.get_by_label("for").fill("soon")
    page.get_by_role("button", name="Pause").click()
    field = page.get_by_label("for")
    expect(field).to_be_focused()
    expect(field).to_have_value("soon")
    expect(field).to_have_accessible_description(
        "'soon' is not a duration of 0 or more: write it as 500ms, 10s, 1h30m or 2d"
    )
