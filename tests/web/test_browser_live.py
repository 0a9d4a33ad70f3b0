"""Live pages in a real browser: one stream per page, none for a hidden tab, and user input survives updates."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

from delayq import Outgoing, Queue
from delayq.web import Dashboard, Token, app, sse
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.harness.web.scene import Scene
from tests.harness.web.serving import served
from tests.web.conftest import Screen, Serve
from tests.web.test_actions import bury

pytestmark = pytest.mark.full

SERVERS = [f"server-{number}" for number in range(7)]
"""One more than a browser's connections to a host."""

SECRET = "a token that is long enough"
PAUSES = """window.pauses = []; {
  const wait = window.setTimeout;
  window.setTimeout = (done, ms) => { pauses.push(ms); return wait(done, 1); };
}"""
"""Records each pause of the page's script, and shortens it."""

PART = (
    '<div id="queues#main">{1}<p>Count {0}</p><details><summary>More</summary>Within {0}</details>'
    '<label>Box <input type="checkbox"></label><label>Text <input value="{0}"></label></div>'
)

ANSWER = "No answer: this may be out of date."
CELLS = "td[data-label=Scheduled]"

SHOW = """(is) => {
  Object.defineProperty(document, 'hidden', { value: !is, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""
"""An automated browser treats every tab as visible: this script makes a page look hidden to itself."""


@pytest.fixture
def unhurried() -> None:
    """Let servers count as silent after the usual time: that is what these tests are about."""


@pytest.fixture
def seven(redis_server: RedisServer, queue: Queue) -> Iterator[tuple[str, Dashboard]]:
    """A dashboard of seven servers, and its address."""
    queue.send("hello", delay=3600)
    dashboard = app(dict.fromkeys(SERVERS, redis_server.url), interval=0.05)
    with served(dashboard) as url:
        yield url, dashboard


def sees(page: Page, is_visible: bool) -> None:
    page.evaluate(SHOW, is_visible)


def test_page_of_seven_servers_has_one_stream_that_blocks_no_click(
    seven: tuple[str, Dashboard], queue: Queue, screen: Screen
):
    url, dashboard = seven
    page = screen.page
    page.goto(url)
    expect(page.locator(CELLS)).to_have_text(["1"] * 7)
    page.get_by_role("link", name="emails").last.focus()
    queue.send("hello", delay=3600)
    expect(page.locator(CELLS)).to_have_text(["2"] * 7)  # each of them is live
    assert len(dashboard.state.streams) == 1
    expect(page.get_by_role("link", name="emails").last).to_be_focused()
    page.get_by_role("link", name="emails").last.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("emails")
    assert screen.complaints == []


def test_fifty_dense_rows_fit_on_two_screens_and_a_moved_row_keeps_the_focus(
    serve: Serve, redis_server: RedisServer, screen: Screen
):
    for number in range(50):
        with Queue(f"queue-{number:02}", url=redis_server.url) as queue:
            queue.send("hello", delay=3600)
    page = screen.page
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{serve()}/?dense=1&sort=scheduled")
    links = page.locator("tbody th a")
    expect(links).to_have_count(50)
    assert page.evaluate("document.documentElement.scrollHeight") <= 2 * 800
    links.last.focus()
    with Queue("queue-49", url=redis_server.url) as queue:
        queue.send("hello", delay=3600)
    expect(links.first).to_have_text("queue-49")
    expect(links.first).to_be_focused()
    assert screen.complaints == []


def test_hidden_tab_closes_its_stream_and_reopens_it_when_shown(
    seven: tuple[str, Dashboard], queue: Queue, screen: Screen
):
    url, dashboard = seven
    context: BrowserContext = screen.page.context
    tabs = [screen.page]
    for _ in SERVERS:
        tabs[-1].goto(url)
        assert eventually(lambda: len(dashboard.state.streams) == 1)
        sees(tabs[-1], False)
        assert eventually(lambda: not dashboard.state.streams)
        tabs.append(context.new_page())
    tabs[-1].goto(url)
    tabs[-1].get_by_role("link", name="emails").first.click()
    expect(tabs[-1].get_by_role("heading", level=1)).to_have_text("emails")
    assert eventually(lambda: len(dashboard.state.streams) == 1)
    queue.send("hello", delay=3600)
    expect(tabs[0].locator(CELLS).first).to_have_text("1")
    sees(tabs[0], True)
    expect(tabs[0].locator(CELLS).first).to_have_text("2")
    assert screen.complaints == []


def test_silent_server_is_reported_beside_those_that_answer(
    redis_server: RedisServer, own_server: RedisServer, screen: Screen, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.servers.SILENCE_SECONDS", 4.0)
    for server in (redis_server, own_server):
        with Queue("emails", url=server.url) as queue:
            queue.send("hello", delay=3600)
    page = screen.page
    with ExitStack() as stack:
        page.goto(stack.enter_context(served(app({"east": redis_server.url, "west": own_server.url}, interval=0.1))))
        east, west = (page.locator(f"section[id='server#{each}']") for each in ("east", "west"))
        for each in (east, west):
            expect(each.locator(".seen")).to_have_text(re.compile(r"^Updated [0-2] s ago\s*$"))
        stack.callback(os.kill, own_server.pid, signal.SIGCONT)
        os.kill(own_server.pid, signal.SIGSTOP)
        expect(west.get_by_role("status").filter(has_text=ANSWER)).to_be_visible()
        expect(west).to_contain_text("west has not answered for 4 s: check that the server runs")
        expect(east.locator(".seen")).to_have_text(re.compile(r"^Updated [0-2] s ago\s*$"))
        answer = page.goto(page.url)  # opened meanwhile
        assert answer is not None
        assert answer.status == 200
        expect(west).to_contain_text("west has not answered for 4 s: check that the server runs")
        expect(west.locator(".seen")).not_to_contain_text("Updated")
        expect(east.get_by_role("link", name="emails")).to_be_visible()
        os.kill(own_server.pid, signal.SIGCONT)
        expect(west.get_by_role("link", name="emails")).to_be_visible()
        expect(west.locator(".seen")).to_have_text(re.compile(r"^Updated [0-2] s ago\s*$"))
        page.goto("about:blank")  # otherwise its stream delays the end of the dashboard
    assert screen.complaints == []


def test_user_input_in_a_live_part_survives_updates(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", delay=3600)
    page, parts = screen.page, iter([PART.format(1, ""), PART.format(2, "<p>A new line</p>")])

    def answer(route: Route) -> None:
        html = next(parts, "")
        route.fulfill(content_type="text/event-stream", body=f"data: {html}\n\n" if html else "")

    page.route("**/live?*", answer)
    page.clock.install()
    page.goto(serve())
    expect(page.get_by_text("Count 1")).to_be_visible()
    page.get_by_text("More").click()
    page.get_by_label("Box").check()
    page.get_by_label("Text").fill("")
    page.get_by_label("Text").press_sequentially("abc")
    page.clock.fast_forward(10_000)
    expect(page.get_by_text("Count 2")).to_be_visible()
    expect(page.get_by_text("A new line")).to_be_visible()
    expect(page.get_by_text("Within")).to_be_visible()
    expect(page.get_by_label("Box")).to_be_checked()
    expect(page.get_by_label("Text")).to_be_focused()
    page.keyboard.type("d")
    expect(page.get_by_label("Text")).to_have_value("abcd")
    assert screen.complaints == []


def test_redrawn_chart_keeps_its_open_table_and_its_reading(serve: Serve, redis_server: RedisServer, screen: Screen):
    Scene(redis_server.url).play()
    page = screen.page
    page.clock.install()
    page.goto(f"{serve()}/main/queues/emails")
    chart = page.locator("figure.chart").nth(1)
    chart.get_by_text("As a table").click()
    chart.locator("svg[tabindex]").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    reading, cross = chart.locator("output").inner_text(), chart.locator(".cross")
    assert re.search(r"^\d\d:\d\d.* · sent [\d.]+/s · acked [\d.]+/s · failed", reading)
    page.evaluate("document.querySelectorAll('.chart .title')[1].textContent = 'An old one'")
    for _ in range(2):
        with page.expect_response("**/charts?span=hour&due=hour"):
            page.clock.fast_forward(31_000)
    expect(chart.locator(".title")).to_have_text("Throughput")  # it was redrawn
    expect(chart.locator("output")).to_have_text(reading)
    expect(cross).to_have_attribute("visibility", "visible")
    expect(chart.locator("svg[tabindex]")).to_be_focused()
    expect(chart.locator("details")).to_have_attribute("open", "")
    due = page.locator("#due + figure.chart")
    due.locator("svg[tabindex]").focus()
    page.keyboard.press("ArrowRight")
    expect(due.locator("output")).to_have_text(re.compile(r"^\d\d:\d\d:\d\d · scheduled [\d,]+ · retrying \d+$"))
    assert screen.complaints == []


def test_stopped_search_continues_where_it_was_and_keeps_the_focus(
    serve: Serve, queue: Queue, screen: Screen, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.pages.messages.SEARCH_SECONDS", 1e-9)  # one step per request
    queue.send_many([Outgoing(n, delay=3600 + n, id=f"m{n:03}") for n in range(600)])
    page = screen.page
    page.clock.install(time=0)
    page.clock.pause_at(1000)  # so that nothing continues by itself
    page.goto(f"{serve()}/main/queues/emails/messages?state=pending&where=payload&text=00")
    page.get_by_role("link", name="Stop").click()
    on = page.get_by_role("link", name="Continue")
    expect(on).to_be_focused()
    page.clock.run_for(60_000)
    expect(on).to_be_visible()
    on.click()
    expect(page.get_by_role("link", name="Stop")).to_be_focused()
    page.clock.resume()
    expect(page.get_by_text("5 found, 600 of 600 searched")).to_be_visible()
    expect(page.get_by_role("rowheader")).to_have_text([f"m{n}00" for n in range(1, 6)])
    assert screen.complaints == []


def test_failed_stop_of_a_search_is_retried_and_the_search_stops(
    serve: Serve, queue: Queue, screen: Screen, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.pages.messages.SEARCH_SECONDS", 1e-9)
    queue.send_many([Outgoing(n, delay=3600 + n, id=f"m{n:03}") for n in range(600)])
    page, asked = screen.page, list[str]()
    page.clock.install(time=0)
    page.clock.pause_at(1000)
    page.goto(f"{serve()}/main/queues/emails/messages?state=pending&where=payload&text=00")
    page.on("request", lambda request: asked.append(request.url) if "/found?" in request.url else None)
    page.route("**/found?*halt=1*", lambda route: route.abort(), times=1)
    with page.expect_event("requestfailed"):
        page.get_by_role("link", name="Stop").click()
    for _ in range(20):
        page.clock.run_for(1000)
    expect(page.get_by_role("link", name="Continue")).to_be_visible()
    assert [url for url in asked if "halt=1" not in url] == []


@pytest.mark.parametrize("is_old", [True, False])
def test_page_is_live_without_group_by_and_a_script_error_is_not_a_lost_connection(
    serve: Serve, queue: Queue, screen: Screen, is_old: bool
):
    queue.send("hello", delay=3600)
    page = screen.page
    bug = "document.createElement = () => { throw new TypeError('a bug'); };"
    page.add_init_script("delete Object.groupBy" if is_old else bug)
    page.goto(serve())
    if is_old:
        queue.send("hello", delay=3600)
        expect(page.locator(CELLS)).to_have_text("2")
    else:
        assert eventually(lambda: page.evaluate("1") == 1 and any("a bug" in each for each in screen.complaints), 60)
    expect(page.locator("#lost")).to_be_hidden()


def test_reading_of_a_chart_is_not_repeated_when_other_parts_change(
    serve: Serve, queue: Queue, redis_server: RedisServer, screen: Screen
):
    Scene(redis_server.url).play()
    page = screen.page
    page.clock.install()
    page.goto(f"{serve()}/main/queues/emails")
    page.clock.pause_at(page.evaluate("Date.now() + 1000"))  # the charts are not drawn again
    chart = page.locator("figure.chart").first
    chart.locator("svg[tabindex]").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart.locator("output")).to_have_text(re.compile("scheduled"))
    page.evaluate("""() => {
      window.written = 0;
      const output = document.querySelector("figure.chart output");
      new MutationObserver((all) => { written += all.length; }).observe(output, { childList: true });
      window.morphs = 0;
      document.addEventListener("morphed", () => { morphs += 1; });
    }""")
    queue.send("hello", delay=3000)
    assert eventually(lambda: page.evaluate("morphs") > 0)
    assert page.evaluate("written") == 0


def test_expired_session_redirects_a_live_page_to_login(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", delay=3600)
    page = screen.page
    page.goto(serve(login=Token(SECRET)))
    page.get_by_label("Token").fill(SECRET)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("link", name="emails")).to_be_visible()
    page.context.clear_cookies()
    sees(page, False)
    sees(page, True)
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")


def test_page_retries_a_lost_dashboard_after_growing_pauses(serve: Serve, queue: Queue, screen: Screen):
    queue.send("hello", delay=3600)
    page, asked = screen.page, list[str]()

    def refuse(route: Route) -> None:
        asked.append(route.request.url)
        route.abort()

    page.route("**/live?*", refuse)
    page.add_init_script(PAUSES)
    page.goto(serve())
    expect(page.get_by_text("Connection to the dashboard lost")).to_be_visible()
    assert eventually(lambda: page.evaluate("pauses.length") >= 7)
    pauses: list[float] = page.evaluate("pauses.slice(0, 7)")
    assert max(pauses) <= 60_000
    assert min(pauses[5:]) > max(pauses[:2])  # the time of an attempt is part of the pause
    assert len(asked) <= page.evaluate("pauses.length") + 1
    page.unroute("**/live?*")
    expect(page.get_by_text("Connection to the dashboard lost")).to_be_hidden()


def test_redrive_is_shown_live_and_can_be_stopped(serve: Serve, queue: Queue, screen: Screen):
    bury(queue, *(f"m{n}" for n in range(200)))
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails/dead")
    page.get_by_role("button", name="Requeue…").first.click()
    page.get_by_label("Rate").fill("2/s")
    page.get_by_role("button", name="Requeue 200 messages").click()
    moved = page.locator(".outcome li").nth(1)
    expect(moved).to_have_text(re.compile(r"^([3-9]|\d\d+) scheduled again"))  # it updates by itself
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped: the rest is unchanged")).to_be_visible()
    stats = queue.stats()
    assert stats.dead > 0
    assert stats.dead + stats.pending == 200
    assert screen.complaints == []


def test_page_of_an_ended_task_sends_no_more_requests(serve: Serve, queue: Queue, screen: Screen):
    bury(queue, *(f"m{n}" for n in range(20)))
    page = screen.page
    page.goto(f"{serve()}/main/queues/emails/dead")
    page.get_by_role("button", name="Requeue…").first.click()
    page.get_by_label("Rate").fill("4/s")
    page.get_by_role("button", name="Requeue 20 messages").click()
    expect(page.locator(".seen")).to_have_count(1)
    expect(page.get_by_text("20 scheduled again")).to_be_visible()
    expect(page.locator(".seen")).to_have_count(0)
    assert screen.complaints == []


def test_page_without_a_stream_polls_until_it_gets_one(
    serve: Serve, queue: Queue, screen: Screen, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sse, "MOST_EACH", 0)
    monkeypatch.setattr(sse, "RETRY_SECONDS", 5)
    queue.send("hello", delay=3600)
    page = screen.page
    with page.expect_response(lambda answer: "/live?" in answer.url) as answered:
        page.goto(serve())
    assert answered.value.status == 429
    queue.send("hello", delay=3600)
    expect(page.locator(CELLS)).to_have_text("2")
    expect(page.locator(".seen")).not_to_contain_text(ANSWER)
    monkeypatch.setattr(sse, "MOST_EACH", 1)
    with page.expect_response(lambda answer: "/live?" in answer.url and answer.status == 200):
        pass
