"""The overview, and the pages of queues."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import re
import socket
import time
from collections.abc import AsyncIterator
from html import unescape
from typing import Any
from urllib.parse import quote

import pytest
import redis

from delayq import Consumer, Queue, Topic
from delayq.aio.queue_names import NameSearch
from delayq.errors import InvalidInput
from delayq.model.health import CODES
from delayq.protocol.operation import execute
from delayq.web import User, render
from delayq.web.servers import address, servers_of
from tests.harness.proxy import Cut, Proxy
from tests.harness.servers import RedisServer
from tests.harness.tree import ROOT
from tests.harness.waiting import eventually
from tests.harness.web.scene import Scene
from tests.web.conftest import Enter, Follow, Serve, act

SCRIPT = "<script>alert(1)</script>"


def text_of(page: str) -> str:
    """Return the text of a page."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", page))


def test_overview_shows_the_queues_of_all_servers(enter: Enter, redis_server: RedisServer, start_server):
    west = start_server()
    for url, name in ((redis_server.url, "emails"), (redis_server.url, "orders"), (west.url, "invoices")):
        with Queue(name, url=url) as queue:
            queue.send("hello", delay=60)
    shown = enter(servers={"east": redis_server.url, "west": west.url}).get("/").text
    sections = dict(re.findall(r'<section id="server#(\w+)".*?(<tbody.*?</tbody>)', shown, re.DOTALL))
    assert re.findall(r'href="([^"]+)"', sections["east"]) == ["/east/queues/emails", "/east/queues/orders"]
    assert re.findall(r'href="([^"]+)"', sections["west"]) == ["/west/queues/invoices"]


def test_server_that_does_not_answer_delays_no_other(
    enter: Enter, queue: Queue, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    queue.send("hello")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        far = f"redis://127.0.0.1:{silent.getsockname()[1]}"
        client = enter(servers={"far": far, "near": redis_server.url})
        monkeypatch.setattr("delayq.web.pages.overview.OTHERS_SECONDS", 0.0)
        page = client.get("/")
    sections = dict(re.findall(r'<section id="server#(\w+)"(.*?)</section>', page.text, re.DOTALL))
    assert page.status_code == 200
    assert "Waiting for the server’s answer" in sections["far"]
    assert "/near/queues/emails" in sections["near"]


LISTS = {"/": "emails", "/main/queues": "emails", "/main/server": "emails", "/main/topics": "orders"}


@pytest.fixture
def registered(queue: Queue, redis_server: RedisServer) -> None:
    """A queue and a topic in the registry."""
    queue.send("hello")
    with Topic("orders", url=redis_server.url) as topic:
        topic.publish("hello")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("path", LISTS)
def test_page_says_that_names_are_still_searched_for(path: str, enter: Enter, monkeypatch: pytest.MonkeyPatch):
    async def never(_: NameSearch) -> AsyncIterator[list[bytes]]:
        await asyncio.Event().wait()
        yield []

    with monkeypatch.context() as patched:
        patched.setattr(NameSearch, "_pages", never)
        client = enter()
        for _ in range(2):
            page = client.get(path).text
            assert LISTS[path] in page
            assert "Still looking for more" in page
    client = enter()
    assert eventually(lambda: "Still looking" not in client.get(path).text, seconds=30)


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("path", LISTS)
def test_page_shows_why_names_may_be_missing(path: str, enter: Enter, redis_server: RedisServer):
    with Proxy(redis_server.socket, lambda command: Cut("before") if command == "SCAN" else None) as proxy:
        client = enter(servers={"main": proxy.url})
        assert eventually(lambda: "There may be more" in client.get(path).text, seconds=30)
        page = client.get(path).text
    assert LISTS[path] in page
    assert "Still looking" not in page


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(
    ("path", "counted"),
    {
        "/api/v1/servers/main": '"queues":9',
        "/api/v1/servers/main/queues": '"total":9',
        "/api/v1/servers/main/topics": '"total":9',
        "/main/schedules": "queue-7",
        "/metrics": 'topic="topic-7"',
    }.items(),
)
def test_programs_and_walks_get_all_names_of_an_earlier_version_or_an_error(
    path: str, counted: str, enter: Enter, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    for number in range(8):
        with Queue(f"queue-{number}", url=redis_server.url) as queue:
            queue.schedules.add("daily", "0 0 * * *", "hello")
        with Topic(f"topic-{number}", url=redis_server.url) as topic:
            topic.publish("hello")
    with redis_server.client() as client:
        client.srem("delayq:queues", *(f"queue-{number}" for number in range(8)))
        client.srem("delayq:topics", *(f"topic-{number}" for number in range(8)))
    monkeypatch.setattr("delayq.aio.queue_names.SCANNED", 1)
    asked = enter().get(path)
    assert (asked.status_code, counted in asked.text) == (200, True), asked.text
    with Proxy(redis_server.socket, lambda command: Cut("before") if command == "SCAN" else None) as proxy:
        refused = enter(servers={"main": proxy.url}).get(path)
    assert refused.status_code == 503 or 'delayq_server_up{server=""} 0' in refused.text, refused.text


def test_pages_of_a_server_are_linked_from_the_overview_of_one_or_several(
    enter: Enter, queue: Queue, redis_server: RedisServer
):
    queue.send("hello", delay=60)
    titles = ["Queues", "Topics", "Jobs", "Server"]
    alone = navigation(enter().get("/").text)
    assert list(alone) == ["main"]
    assert [title for title in alone["main"] if title in titles] == titles
    assert alone["main"]["Topics"] == "/main/topics"
    both = enter(servers=dict.fromkeys(("east", "west"), redis_server.url))
    assert {name: links["Topics"] for name, links in navigation(both.get("/").text).items()} == {
        "east": "/east/topics",
        "west": "/west/topics",
    }
    assert list(navigation(both.get("/west/queues/emails").text)) == ["west"]
    assert navigation(both.get("/nowhere/queues").text) == {}


def navigation(page: str) -> dict[str, dict[str, str]]:
    """Return the links to the pages of each server, by server and title."""
    found = re.findall(r'<nav class="nav" aria-label="Server ([^"]+)">(.*?)</nav>', page, re.DOTALL)
    return {name: {b: a for a, b in re.findall(r'href="([^"]+)"[^>]*>([^<]+)<', links)} for name, links in found}


def test_server_with_topics_alone_is_not_called_empty(enter: Enter, redis_server: RedisServer):
    client = enter()
    assert "No queues yet: nothing has been sent." in text_of(client.get("/").text)
    with Topic("orders", url=redis_server.url) as topic:
        topic.publish("hello")
    assert "No queues yet: there is only 1 topic ." in text_of(enter().get("/").text)


def test_totals_add_up_all_queues_of_a_server(enter: Enter, redis_server: RedisServer):
    past = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    for name, dead in (("emails", 2), ("orders", 1)):
        with Queue(name, url=redis_server.url) as queue:
            for number in range(dead):
                queue.send("hello", id=str(number))
                queue.receive(1)[0].reject("no")
    with Queue("emails", url=redis_server.url) as queue:
        queue.send("hello", at=past)
    assert re.search(
        r"Queues 2 In/s \S+ Out/s \S+ Failed/s \S+ Oldest due 1h( 0?\d*m?s?)* Dead 3 Consumers 2 ",
        text_of(enter().get("/").text),
    )


def test_topics_in_trouble_are_named_with_their_groups(enter: Enter, queue: Queue, redis_server: RedisServer):
    queue.send("hello", delay=60)
    with Topic("orders", url=redis_server.url) as topic:
        topic.group("mail", start="0")
        topic.group("idle")
        client = enter(interval=0)
        assert "topic in trouble" not in client.get("/").text
        topic.publish("x")
        topic.group("idle").poll("one")
        expected = "1 topic in trouble: orders (mail: no consumer)"
        assert eventually(lambda: expected in text_of(client.get("/").text))
    assert 'href="/main/topics/orders"' in client.get("/").text


def test_element_ids_are_unique_for_any_server_and_queue_names(enter: Enter, redis_server: RedisServer):
    names = ["sum", "queues", "server", "queue", "lost", "main"]
    for name in names:
        with Queue(name, url=redis_server.url) as queue:
            queue.send("hello", delay=60)
    shown = enter(servers=dict.fromkeys(names, redis_server.url)).get("/").text
    ids = re.findall(r'\bid="([^"]*)"', shown)
    assert len(ids) > len(names) ** 2
    assert {each for each in ids if ids.count(each) > 1} == set()


def test_overview_counts_messages_by_phase(enter: Enter, queue: Queue):
    for number in range(3):
        queue.send("later", delay=60, id=f"later-{number}")
    for number in range(2):
        queue.send("now", id=f"now-{number}")
    queue.receive(1)[0].reject("no")
    cells = re.findall(r'data-label="(\w+)">([^<]+)<', enter().get("/").text)
    assert dict(cells[:5]) == {"Scheduled": "3", "Due": "1", "Running": "0", "Retrying": "0", "Dead": "1"}


def test_due_messages_without_a_consumer_are_counted_as_due(enter: Enter, queue: Queue):
    queue.send("x")
    client = enter()
    cells = re.findall(r'data-label="(\w+)">([^<]+)<', client.get("/").text)
    assert dict(cells[:2]) == {"Scheduled": "0", "Due": "1"}
    assert "Scheduled 0 Due 1 Running 0" in text_of(client.get("/main/queues/emails").text)
    due = text_of(client.get("/main/queues/emails/messages?state=ready").text)
    assert "1 due stay under scheduled or retrying until a consumer takes them" in due


def reported(queue: Queue, name: str, **more: Any) -> None:
    """Report as a consumer that holds nothing does."""
    about = {"host": "h", "pid": 1, "version": "1", "age": 5, "concurrency": 1, "handled": 0, "failed": 0}
    report = json.dumps(about | {"holds": [], "count": 0} | more).encode()
    queue._executor.execute(execute(queue._context.shards[0].heartbeat(name, report, {})))


def test_handler_that_hangs_is_stuck_on_all_pages(enter: Enter, queue: Queue):
    queue.send("usual")
    Consumer(queue, lambda _: None).drain()
    message_id = queue.send("hello").id
    (message,) = queue.receive(1)
    half_an_hour_ago = int(time.time() * 1000) - 32 * 60_000
    reported(queue, "worker-1", holds=[[message_id, half_an_hour_ago, message.attempt]], count=1)
    client = enter()
    assert "1 of 1 queue in trouble: emails (stuck)" in text_of(client.get("/").text)
    expected = (
        f"stuck Attempt 1 of message {message_id} has been held for 32m by consumer worker-1; 99 % of handlers took"
    )
    assert expected in text_of(client.get("/main/queues/emails").text)
    assert 'delayq_deliveries_stuck{queue="emails"} 1.0' in client.get("/metrics").text
    assert client.get("/api/v1/servers/main/queues/emails").json()["summary"]["troubles"][0]["code"] == "stuck"
    why = queue.why(message_id)
    assert re.search("it has been held for 32m( [0-9]+s)?, far longer than usual: 99 % of handlers took less than", why)


def test_late_schedule_is_named(enter: Enter, queue: Queue, redis_server: RedisServer):
    before = int(time.time() * 1000) - 600_000
    with Queue("emails", url=redis_server.url, clock=lambda: str(before)) as past:
        past.schedules.add("minutely", "every 1m")
    reported(queue, "worker-1")
    client = enter()
    assert "ago schedule late" in text_of(client.get("/main/queues/emails/schedules").text)
    text = text_of(client.get("/main/queues/emails").text)
    assert "late A message has been due for" in text
    assert re.search(
        r"schedule late 1 schedule is late: its slot was [0-9]+m( [0-9]+s)? ago, and no consumer has taken it\.", text
    )


def test_worst_troubles_are_named_first(enter: Enter, redis_server: RedisServer):
    past = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
    for number in range(7):
        with Queue(f"q{number}", url=redis_server.url) as queue:
            queue.pause() if number < 5 else queue.send("x", at=past - dt.timedelta(hours=number))
    text = text_of(enter().get("/").text)
    assert (
        "7 of 7 queues in trouble: q6 (no consumer, late), q5 (no consumer, late), q0 (paused), q1 (paused), q2" in text
    )


def test_each_trouble_has_a_word_a_shape_and_a_place_in_the_docs():
    parts: Any = render._environment().get_template("parts.html").module
    assert set(parts.words) == set(CODES)
    assert len(set(parts.shapes) & set(CODES)) == len(CODES) - 1  # an unreadable queue has the triangle
    docs = (ROOT / "docs" / "dashboard.md").read_text()
    rows = re.findall(r"^\| ([a-z ]+) \|", docs.partition("| label |")[2].partition("The list is")[0], re.MULTILINE)
    of_queues = [code for code in CODES if code not in ("unreadable", "behind", "dead-letters")]
    assert rows == [parts.words[code] for code in of_queues]
    named = (ROOT / "docs" / "observing.md").read_text().partition("## Health")[2]
    assert re.findall(r"^\| `([a-z-]+)` \|", named.partition("\n## ")[0], re.MULTILINE) == of_queues
    assert f": {', '.join(of_queues)};" in (ROOT / "docs" / "upcoming.md").read_text()


def test_trouble_is_described_in_words(enter: Enter, queue: Queue):
    queue.send("hello", at=dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    client = enter()
    assert "1 of 1 queue in trouble: emails (no consumer, late)" in text_of(client.get("/").text)
    assert "and there is no consumer" in text_of(client.get("/main/queues/emails").text)


def test_paused_queue_is_not_blamed_for_its_consumers(enter: Enter, queue: Queue):
    queue.send("hello", at=dt.datetime.now(dt.UTC) - dt.timedelta(hours=1))
    queue.pause()
    client = enter()
    assert "1 of 1 queue in trouble: emails (paused)" in text_of(client.get("/").text)
    text = text_of(client.get("/main/queues/emails").text)
    assert "The queue has been paused since" in text
    assert "there is no consumer" not in text


@pytest.mark.parametrize("name", [SCRIPT, "a/b", "..", ".", "50%2F", "ä ö", "?x=1&y", 'a"b', "'"])
def test_queue_with_any_name_is_shown_as_text_and_linked(enter: Enter, redis_server: RedisServer, name: str):
    with Queue(name, url=redis_server.url) as queue:
        queue.send("hello")
    client = enter()
    overview = client.get("/").text
    assert SCRIPT not in overview
    (link,) = set(re.findall(r'href="(/main/queues/[^"]+)"', overview))
    page = client.get(link)
    assert page.status_code == 200
    assert SCRIPT not in page.text
    assert client.post(f"{link}/pause").status_code == 403


def test_unreachable_server_is_shown_beside_the_other(enter: Enter, queue: Queue, redis_server: RedisServer):
    queue.send("hello")
    both = enter(servers={"away": "redis://127.0.0.1:1", "main": redis_server.url}).get("/")
    assert both.status_code == 200
    assert "check that the server is running, and check the URL" in both.text
    assert "/main/queues/emails" in both.text
    alone = enter(servers={"away": "redis://127.0.0.1:1"})
    assert alone.get("/").status_code == 503
    failed = alone.get("/away/queues/emails")
    assert (failed.status_code, failed.headers["retry-after"]) == (503, "5")
    assert "check that the server is running, and check the URL" in failed.text


def test_unknown_names_are_reported(enter: Enter):
    client = enter()
    assert "Server main has no queue nobody" in client.get("/main/queues/nobody").text
    assert "This dashboard has no server elsewhere" in client.get("/elsewhere/queues/emails").text
    assert client.get("/main/queues/nobody").status_code == client.get("/elsewhere/queues/emails").status_code == 404


def test_viewing_a_missing_queue_leaves_no_trace(enter: Enter, redis_client: redis.Redis):
    client = enter()
    for path in ("/", "/main/queues/nobody", "/main/queues/nobody/charts"):
        client.get(path)
    assert redis_client.keys() == []


def test_names_are_not_searched_for_at_each_request(enter: Enter, queue: Queue, redis_client: redis.Redis):
    queue.send("hello")
    client = enter(interval=0)
    client.get("/")
    before = redis_client.info("commandstats")["cmdstat_scan"]["calls"]
    for _ in range(5):
        assert client.get("/main/queues/emails").status_code == client.get("/").status_code == 200
    assert redis_client.info("commandstats")["cmdstat_scan"]["calls"] == before


def test_pause_and_resume_change_the_queue_show_a_notice_and_are_audited(enter: Enter, queue: Queue):
    queue.send("hello")
    lines: list[object] = []
    client = enter(audit=lines.append)
    paused = act(client, "/main/queues/emails/pause")
    assert (paused.status_code, paused.headers["location"]) == (303, "/main/queues/emails")
    assert queue.stats().paused_since is not None
    assert "emails is paused: running messages finish" in client.get("/main/queues/emails").text
    assert "emails is paused: running messages finish" not in client.get("/main/queues/emails").text
    act(client, "/main/queues/emails/resume")
    assert queue.stats().paused_since is None
    about = {"who": "local", "server": "main", "queue": "emails", "outcome": "done"}
    assert lines == [about | {"action": "pause"}, about | {"action": "resume"}]


def test_queue_is_paused_from_its_row_and_the_list_comes_back_unchanged(enter: Enter, queue: Queue):
    queue.send("hello")
    lines: list[object] = []
    client = enter(audit=lines.append)
    view = unescape(client.get("/?sort=dead&order=asc&dense=1&name=e").text.partition('name="view" value="')[2])
    fields = {"page": "overview", "view": view.partition('"')[0]}
    for verb, notice in (("pause", "emails is paused"), ("resume", "emails is resumed.")):
        (path,) = re.findall(r'<button form="act" formaction="([^"]+)"', client.get("/").text)
        assert path == f"/main/queues/emails/{verb}"
        answer = act(client, path, **fields)
        assert answer.headers["location"] == "/?name=e&sort=dead&order=asc&dense=1"
        assert notice in client.get(answer.headers["location"]).text
        assert (queue.stats().paused_since is not None) is (verb == "pause")
    assert len(lines) == 2
    answer = act(client, "/main/queues/emails/pause", page="queues", view="start=50&sort=in")
    assert answer.headers["location"] == "/main/queues?start=50&sort=in&order=desc"


def test_row_action_with_an_invalid_list_changes_nothing(enter: Enter, queue: Queue):
    queue.send("hello")
    answer = act(enter(), "/main/queues/emails/pause", page="overview", view="sort=size")
    assert answer.status_code == 400
    assert "unknown sort" in answer.text
    assert queue.stats().paused_since is None


def test_viewer_sees_no_row_action_on_the_page_or_live(enter: Enter, serve: Serve, follow: Follow, queue: Queue):
    queue.send("hello")
    assert "formaction" not in enter(read_only=True).get("/").text
    url = serve(login=lambda request: User("ann", "viewer" if request.query_params["as"] == "viewer" else "operator"))
    operator = follow(f"{url}/live?as=operator")
    assert operator.has_seen("formaction")
    viewer = follow(f"{url}/live?as=viewer")
    assert viewer.has_seen("emails")
    assert "formaction" not in viewer.text


def test_failed_action_is_audited_as_failed(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send("hello")
    lines: list[dict[str, str]] = []
    client = enter(audit=lines.append)

    async def refused(_: object, __: object) -> None:
        raise InvalidInput("not today")

    monkeypatch.setattr("delayq.aio.Queue.pause", refused)
    answer = act(client, "/main/queues/emails/pause")
    assert (answer.status_code, "not today" in answer.text) == (400, True)
    assert lines[-1]["outcome"] == "failed: not today"


@pytest.mark.parametrize(("due", "title", "count"), [("minute", "minute", 2), ("", "hour", 3), ("day", "day", 4)])
def test_page_shows_what_falls_due_in_the_selected_range(enter: Enter, queue: Queue, due: str, title: str, count: int):
    for seconds in (40, 50, 600, 7200):
        queue.send("hello", delay=seconds)
    shown = enter().get(f"/main/queues/emails?due={due}").text
    assert re.findall(r'aria-label="Next (\w+): (\d+) fall due,', shown) == [(title, str(count))]
    assert f'?span=hour&amp;due={title}#due" aria-current="true">Next {title}</a>' in shown


def test_charts_keep_both_choices_when_one_changes_or_they_are_redrawn(enter: Enter, queue: Queue):
    queue.send("hello", delay=40)
    client = enter()
    for path in ("/main/queues/emails", "/main/queues/emails/charts"):
        shown = client.get(f"{path}?span=day&due=minute").text
        assert 'data-next="/main/queues/emails/charts?span=day&amp;due=minute"' in shown
        assert 'href="/main/queues/emails?span=day&amp;due=hour#due"' in shown
    assert '<a href="?span=hour&amp;due=minute#history">' in client.get("/main/queues/emails?span=day&due=minute").text
    unknown = client.get("/main/queues/emails?span=week&due=year").text
    assert "charts?span=hour&amp;due=hour" in unknown


def test_history_is_drawn_and_shown_as_a_table(enter: Enter, redis_server: RedisServer):
    now = dt.datetime.now(dt.UTC).timestamp() * 1000
    at = [now]
    with Queue("emails", url=redis_server.url, clock=lambda: str(int(at[0]))) as queue:
        for minutes, count in ((40, 1), (30, 60), (20, 120)):
            at[0] = now - minutes * 60_000
            for number in range(count):
                queue.send("hello", id=f"{minutes}-{number}", delay=86_400)
            queue.sample()
    client = enter()
    shown = client.get("/main/queues/emails").text
    assert re.findall(r"<td>([\d.]+)/s</td>", shown)[:6:3] == ["0.1", "0.2"]
    assert re.findall(r"<td>([\d.]+)</td>", shown)[:15:5] == ["1", "61", "181"]  # of the backlog
    day = client.get("/main/queues/emails?span=day").text
    assert '<a href="?span=day&amp;due=hour#history" aria-current="true">' in day


def test_queue_created_after_the_search_is_found_by_its_name(enter: Enter, redis_server: RedisServer):
    client = enter()
    client.get("/")
    assert client.get("/main/queues/new").status_code == 404
    with Queue("new", url=redis_server.url) as queue:
        queue.send("hello")
    assert client.get("/main/queues/new").status_code == 200


def test_page_of_a_queue_scans_no_other_keys(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    queue.send("hello")
    monkeypatch.setattr("delayq.aio.queue_names.pattern", None)  # a search would need it
    client = enter()
    assert client.get("/main/queues/emails").status_code == 200
    for name in ("none", "a{b}", "emails#1"):
        assert (name, client.get(f"/main/queues/{quote(name)}").status_code) == (name, 404)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("redis://localhost:6379/0", "localhost:6379"),
        ("redis://ann:secret@cache:6380/3", "cache:6380/3"),
        ("rediss://:secret@cache?ssl_password=secret", "cache"),
        ("redis+sentinel://:secret@a:1,b:2/mymaster/0", "a:1,b:2/mymaster"),
        ("unix:///run/redis.sock", "run/redis.sock"),
        ("embedded://", "embedded"),
    ],
)
def test_unnamed_server_is_named_by_its_address_without_secrets(url: str, name: str):
    assert address(url) == name
    assert list(servers_of(url, "delayq")) == [name]


def test_ambiguous_servers_are_refused():
    with pytest.raises(InvalidInput, match="the server a is given twice"):
        servers_of(["redis://a/0", "redis://:x@a"], "delayq")
    with pytest.raises(InvalidInput, match="no server given"):
        servers_of([], "delayq")
    with pytest.raises(InvalidInput, match="server name 'static' is reserved for a page: choose another"):
        servers_of({"static": "redis://a"}, "delayq")


@pytest.mark.parametrize(
    "path", ["/%25FF/queues/emails", "/main/queues/%25FF", "/main/topics/%25FF", "/main/jobs/%25FF"]
)
def test_name_that_is_not_text_is_not_found(enter: Enter, queue: Queue, path: str):
    queue.send("hello")
    assert enter().get(path).status_code == 404


@pytest.mark.full
def test_texts_beside_the_picture_say_what_it_shows(enter: Enter, redis_server: RedisServer):
    """The picture of README.md and of the site's first page is taken of this scene."""
    Scene(redis_server.url).play()
    page = enter().get("/").text
    numbers = ("no", "one", "two", "three", "four", "five")
    for file in (ROOT / "README.md", ROOT / "docs" / "index.md"):
        found = re.search(
            r"!\[The dashboard: (\w+) of (\w+) queues are in trouble, and it says why\]", file.read_text()
        )
        assert found is not None
        assert f"{numbers.index(found[1])} of {numbers.index(found[2])} queues in trouble: " in text_of(page)
    cells = re.findall(r'data-label="(?:Due|Oldest due)">([^<]*)<', page)
    rows = list(zip(cells[::2], cells[1::2], strict=True))
    assert len(rows) == 5
    assert {due != "0" for due, oldest in rows if oldest != "–"} == {True}
    assert {due for due, oldest in rows if oldest == "–"} == {"0"}
