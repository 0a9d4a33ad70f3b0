"""Schedules of a queue and of a server: in words, with their outcomes; adding and removing them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from html import unescape
from typing import Any

import pytest
from delayq.cli.cron import cron

from delayq import Outgoing, Queue
from delayq.model.actions import SCHEDULE_ACTIONS, ScheduleAction
from delayq.operations.schedules import add_all
from delayq.web.api.schedules import OPERATIONS
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter
from tests.web.test_actions import QUEUE, send
from tests.web.test_forms import typed, wrong
from tests.web.test_messages import words

NEW = f"{QUEUE}/new-schedule"


def handle(queue: Queue) -> None:
    """Make a schedule run five times: two succeed, one fails, one is dead, one is still running."""
    queue.configure(events=True)
    queue.schedules.add("hourly", "every 1h")
    for _ in range(5):
        queue.schedules.run_now("hourly")
    first, second, third, fourth, _running = queue.receive(5)
    first.ack()
    second.nack(delay=600, error="HTTP 503")
    third.reject("no luck")
    fourth.ack()


OUTCOMES = "2 ok, 1 dead, 1 failed, 1 running"


def test_last_outcomes_of_a_schedule_are_shown_latest_first(enter: Enter, queue: Queue):
    handle(queue)
    page = enter().get(f"{QUEUE}/schedules").text
    assert "hourly Every 1h" in words(page)
    listed = re.findall(r"<li><a [^>]*>(\w+)</a>", page)
    assert listed == ["ok", "dead", "failed", "ok", "running"]
    assert OUTCOMES in words(page)
    assert "HTTP 503" in words(page)


def test_schedule_is_late_unless_the_queue_is_paused(enter: Enter, queue: Queue, redis_server: RedisServer):
    before = int(time.time() * 1000) - 7_200_000
    with Queue("emails", url=redis_server.url, clock=lambda: str(before)) as past:
        past.schedules.add("hourly", "every 1h")
    client = enter()
    pages = (f"{QUEUE}/schedules", "/main/schedules", f"{QUEUE}/schedules/hourly/remove")
    assert all("schedule late" in words(client.get(page).text) for page in pages)
    queue.pause()
    assert not any("schedule late" in words(client.get(page).text) for page in pages)


def test_only_ten_outcomes_are_shown(enter: Enter, queue: Queue):
    queue.configure(events=True)
    queue.schedules.add("hourly", "every 1h")
    for _ in range(12):
        queue.schedules.run_now("hourly")
    queue.ack(queue.receive(12))
    assert "10 ok" in words(enter().get(f"{QUEUE}/schedules").text)


def test_ledger_is_read_only_to_a_limit(enter: Enter, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.schedule_rows.STEP", 10)
    monkeypatch.setattr("delayq.web.schedule_rows.MOST_LOOKED_AT", 30)
    handle(queue)
    client = enter()
    queue.send_many([Outgoing(n, delay=60) for n in range(10)])
    assert OUTCOMES in words(client.get(f"{QUEUE}/schedules").text)
    queue.send_many([Outgoing(n, delay=60) for n in range(20)])
    assert "no recent ledger entries" in words(client.get(f"{QUEUE}/schedules").text)


def test_reason_of_an_outcome_is_redacted(enter: Enter, queue: Queue):
    queue.configure(events=True)
    queue.schedules.add("hourly", "every 1h")
    queue.schedules.run_now("hourly")
    (message,) = queue.receive(1)
    message.nack(delay=600, error="HTTP 401: token=abcdef")
    client = enter(redact=["token"])
    for path in (f"{QUEUE}/schedules", "/main/schedules"):
        page = client.get(path).text
        assert "HTTP 401" in page
        assert "abcdef" not in page


@pytest.fixture
def unable(redis_server: RedisServer) -> Iterator[str]:
    """The URL of a user who may do everything except read a stream backwards."""
    with closing(redis_server.client()) as root:
        root.execute_command("ACL", "SETUSER", "dash", "on", ">secret", "~*", "&*", "+@all", "-xrevrange")
        yield redis_server.url.replace("unix://", "unix://dash:secret@")
        root.execute_command("ACL", "DELUSER", "dash")


def test_unreadable_ledger_does_not_hide_schedules(enter: Enter, queue: Queue, unable: str):
    handle(queue)
    client = enter(servers={"main": unable})
    for path in (f"{QUEUE}/schedules", "/main/schedules"):
        text = words(client.get(path).text)
        assert "Every 1h" in text
        assert "the dashboard’s Redis user may not read the ledger" in text


def test_schedules_of_a_server_include_all_its_queues(enter: Enter, queue: Queue, redis_server: RedisServer):
    handle(queue)
    with Queue("reports/a", url=redis_server.url) as other:
        other.schedules.add("nightly", "0 3 * * *", timezone="Asia/Tokyo")
        other.schedules.pause("nightly")
    page = enter().get("/main/schedules").text
    text = words(page)
    assert "hourly emails Every 1h" in text
    assert OUTCOMES in text
    assert "nightly reports/a At 03:00 every day, Asia/Tokyo 0 3 * * * paused the ledger is off" in text
    assert 'href="/main/queues/reports%252Fa/schedules"' in page


def test_schedules_of_a_server_come_by_pages_of_queues(
    enter: Enter, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("delayq.web.queue_walk.AT_ONCE", 1)
    monkeypatch.setattr("delayq.web.queue_walk.ENOUGH", 2)
    monkeypatch.setattr("delayq.web.queue_walk.SECONDS", 60.0)
    for number in range(5):
        with Queue(f"q{number}", url=redis_server.url) as queue:
            if number == 2:
                queue.pause()
            else:
                queue.schedules.add(f"s{number}", "every 1h")
    client, path, seen = enter(), "/main/schedules", list[list[str]]()
    while path:
        page = client.get(path).text
        seen.append(re.findall(r'role="rowheader">(s\d)<', page))
        path = "".join(f"/main/schedules{unescape(each)}" for each in re.findall(r'rel="next" href="([^"]*)"', page))
    assert seen == [["s0", "s1"], ["s3", "s4"]]


def test_page_reads_queues_for_a_moment_only(enter: Enter, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("delayq.web.queue_walk.AT_ONCE", 1)
    monkeypatch.setattr("delayq.web.queue_walk.SECONDS", 0)
    for name in ("a", "b"):
        with Queue(name, url=redis_server.url) as queue:
            queue.pause()
    client = enter()
    assert "No queue on this page has a schedule. 1 queue checked. Next queues" in words(
        client.get("/main/schedules").text
    )
    assert "No queue has a schedule." in words(client.get("/main/schedules?after=a").text)


def test_unreadable_queue_is_reported_beside_the_others(enter: Enter, queue: Queue, redis_server: RedisServer):
    queue.schedules.add("hourly", "every 1h")
    with Queue("broken", url=redis_server.url) as broken:
        broken.pause()
        broken._executor.client.set("delayq:{broken}:schedules", "x")
    text = words(enter().get("/main/schedules").text)
    assert "broken: " in text
    assert "hourly emails" in text


FIELDS = {
    "name": "nightly/<b>",
    "when": "0 9 * * mon-fri",
    "timezone": "Europe/Berlin",
    "missed": "skip",
    "grace": "10m",
    "start": "2030-01-01T00:00Z",
    "end": "2031-01-01T00:00Z",
    "jitter": "",
    "payload": '{"full": 1.10}',
    "kind": "json",
    "headers": "tenant=acme",
    "retries": "2",
    "timeout": "5m",
}


def preview(client: Client, **change: str) -> Any:
    return send(client, NEW, **FIELDS | {"act": "preview"} | change)


def stored(client: Client, page: str, act: str = "store") -> Any:
    """Send the form of a preview."""
    form = page.partition('<form class="editor"')[2].partition("</form>")[0]
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form)
    return client.post(NEW, data={name: unescape(value) for name, value in fields} | {"act": act}, headers=OWN)


@pytest.fixture
def client(enter: Enter, queue: Queue) -> Client:
    queue.pause()
    return enter()


def test_schedule_is_previewed_in_words_and_times_and_stored_once(client: Client, queue: Queue):
    page = preview(client).text
    text = words(page)
    assert "Every weekday at 09:00, Europe/Berlin." in text
    times = [f"2030-01-0{day} 08:00:00" for day in (1, 2, 3, 4, 7)]
    assert re.findall(r"2030-01-0\d 08:00:00", text) == times
    assert queue.schedules.list() == []
    moved = stored(client, page)
    assert moved.headers["location"] == f"{QUEUE}/schedules"
    assert "nightly/<b> is stored: it fires next at 2030-01-01 08:00:00 UTC." in words(
        client.get(moved.headers["location"]).text
    )
    (schedule,) = queue.schedules.list()
    assert (schedule.name, schedule.when, schedule.timezone) == ("nightly/<b>", "0 9 * * mon-fri", "Europe/Berlin")
    assert (schedule.missed, schedule.grace, schedule.max_retries, schedule.timeout) == ("skip", 600.0, 2, 300.0)
    assert (schedule.payload, schedule.headers, schedule.own) == ({"full": 1.1}, {"tenant": "acme"}, False)
    assert schedule.start is not None
    assert schedule.end is not None
    assert (schedule.start.year, schedule.end.year) == (2030, 2031)
    queue.schedules.remove("nightly/<b>")
    assert "is already stored" in words(client.get(stored(client, page).headers["location"]).text)
    assert queue.schedules.list() == []


def test_preview_leads_back_to_the_filled_form(client: Client):
    answer = stored(client, preview(client).text, "change")
    assert answer.status_code == 200
    texts = set(FIELDS) - {"missed", "kind"}
    assert {name: typed(answer.text, name) for name in texts} == {name: FIELDS[name] for name in texts}
    assert '<option value="skip" selected>' in answer.text


def test_preview_names_the_schedule_that_would_change(client: Client, queue: Queue):
    queue.schedules.add("nightly/<b>", "every 1h")
    page = preview(client).text
    assert "A schedule with this name exists: Every 1h." in words(page)
    assert "is changed: it fires next" in words(client.get(stored(client, page).headers["location"]).text)


def test_schedule_added_after_the_preview_is_not_changed(client: Client, queue: Queue):
    page = preview(client).text
    queue.schedules.add("nightly/<b>", "every 1h")
    answer = stored(client, page)
    assert (answer.status_code, "now exists: check the preview again" in words(answer.text)) == (400, True)
    assert [each.when for each in queue.schedules.list()] == ["every 1h"]


def test_form_cannot_change_a_schedule_of_a_program(client: Client, queue: Queue):
    @queue.cron("every 1h", name="nightly/<b>")
    def nightly(_: Any) -> None: ...

    queue.execute(add_all, queue.handlers.prepared)  # as a consumer does when it starts
    answer = preview(client)
    assert (answer.status_code, wrong(answer.text)[0]) == (400, "name")
    assert "a program declares schedule nightly" in wrong(answer.text)[1]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("name", "", "must not be empty"),
        ("when", "0 25 * * *", "write five fields"),
        ("when", "0 0 30 2 *", "Bad day-of-month"),
        ("timezone", "Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("grace", "long", "is not a duration"),
        ("start", "2030-01-01", "has no time zone"),
        ("end", "2020-01-01T00:00Z", "never fires"),
        ("jitter", "400d", "more than 366 days"),
        ("payload", "{", "is not JSON"),
        ("headers", "delayq-slot=1", "are delayq's own"),
        ("retries", "-1", "is not a number of retries"),
        ("timeout", "2d", "is not between"),
    ],
)
def test_invalid_schedule_comes_back_with_the_reason(client: Client, name: str, value: str, expected: str):
    answer = preview(client, **{name: value})
    assert answer.status_code == 400
    assert wrong(answer.text)[0] == name
    assert expected in wrong(answer.text)[1]
    assert {each: typed(answer.text, each) for each in ("when", "payload")} == {
        each: (FIELDS | {name: value})[each] for each in ("when", "payload")
    }


def test_schedule_is_removed_after_confirmation(enter: Enter, queue: Queue):
    queue.schedules.add("every/hour", "every 1h")
    lines: list[Any] = []
    client = enter(audit=lines.append)
    path = f"{QUEUE}/schedules/every%252Fhour"
    assert f'href="{path}/remove"' in client.get(f"{QUEUE}/schedules").text
    page = client.get(f"{path}/remove").text
    assert "Remove schedule every/hour" in words(page)
    assert [each.name for each in queue.schedules.list()] == ["every/hour"]
    form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page.partition("editor")[2]))
    moved = client.post(path, data=form | {"act": "remove"}, headers=OWN)
    assert "every/hour and its waiting message are removed." in words(client.get(moved.headers["location"]).text)
    assert (queue.schedules.list(), queue.stats().pending) == ([], 0)
    assert [(line["action"], line["schedule"], line["outcome"]) for line in lines] == [
        ("schedule remove", "every/hour", "done")
    ]
    assert client.get(f"{path}/remove").status_code == 404


def test_each_action_on_schedules_has_a_command_and_an_operation():
    operations = {each.action: each for each in OPERATIONS if each.acts and "/schedules/" in each.path}
    assert set(operations) == {each.audited for each in SCHEDULE_ACTIONS.values()}
    assert set(SCHEDULE_ACTIONS) <= set(cron.commands)


@pytest.mark.parametrize("action", SCHEDULE_ACTIONS.values(), ids=lambda action: action.name)
def test_action_on_a_schedule_has_a_button_a_notice_and_an_audit_line(
    enter: Enter, queue: Queue, action: ScheduleAction
):
    queue.schedules.add("hourly", "every 1h")
    if action.name == "resume":
        queue.schedules.pause("hourly")
    lines: list[Any] = []
    client = enter(audit=lines.append)
    assert action.words.verb in words(client.get(f"{QUEUE}/schedules").text)
    moved = send(client, f"{QUEUE}/schedules/hourly", act=action.name, once="o")
    assert f"hourly {action.notice}" in words(client.get(moved.headers["location"]).text)
    assert [(line["action"], line["outcome"]) for line in lines] == [(action.audited, "done")]
    gone = send(client, f"{QUEUE}/schedules/none", act=action.name, once="p")
    assert gone.status_code == (400 if action.name == "run" else 404)


def test_viewer_gets_no_form(enter: Enter, queue: Queue):
    queue.schedules.add("hourly", "every 1h")
    client = enter(read_only=True)
    for path in (NEW, f"{QUEUE}/schedules/hourly/remove"):
        assert "You have read-only access." in words(client.get(path).text)
    text = words(client.get(f"{QUEUE}/schedules").text)
    assert "Add…" not in text
    assert "Remove…" not in text
