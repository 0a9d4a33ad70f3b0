"""Configuring a queue with a form and a preview of old and new values."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

from delayq import Outgoing, Queue
from tests.harness.servers import RedisServer
from tests.web.conftest import OWN, Client, Enter
from tests.web.test_actions import QUEUE, send
from tests.web.test_forms import typed, wrong
from tests.web.test_messages import words

PATH = f"{QUEUE}/configure"
EMPTY = dict.fromkeys(
    ["rate", "concurrency", "concurrency_per_key", "max_retries", "backoff", "max_dead", "max_length", "events"], ""
)


@pytest.fixture
def lines() -> list[Any]:
    return []


@pytest.fixture
def client(enter: Enter, queue: Queue, lines: list[Any]) -> Client:
    queue.configure(rate="100/s", max_retries=3)
    return enter(audit=lines.append)


def preview(client: Client, **change: str) -> Any:
    fields = {name: typed(client.get(PATH).text, name) for name in EMPTY}
    return send(client, PATH, **fields | {"act": "preview"} | change)


def apply(client: Client, page: str, act: str = "apply") -> Any:
    """Send the form of a preview."""
    form = page.partition('<form class="editor')[2].partition("</form>")[0]
    fields = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form, re.DOTALL)
    return client.post(PATH, data={name: unescape(value) for name, value in fields} | {"act": act}, headers=OWN)


def test_form_shows_the_current_settings(client: Client):
    page = client.get(PATH).text
    assert {name: typed(page, name) for name in EMPTY} == EMPTY | {"rate": "100/s", "max_retries": "3"}
    assert f'href="{PATH}"' in client.get(QUEUE).text


def test_preview_shows_old_and_new_values(client: Client, queue: Queue, lines: list[Any]):
    page = preview(client, rate="50/1s", max_retries="", backoff="fixed:10s", events="1000").text
    text = words(page)
    assert "Maximum rate 100/s 50/s" in text
    assert "Retries of messages sent without their own number 3 set by each program" in text
    assert "Backoff before retries set by each program fixed:10s" in text
    assert "Ledger events to keep no ledger 1000" in text
    assert "Messages that run" not in text
    assert (queue.configuration().rate, lines) == ("100/s", [])
    moved = apply(client, page)
    assert moved.headers["location"] == QUEUE
    found = queue.configuration()
    assert (found.rate, found.max_retries, found.backoff, found.events) == ("50/s", None, "fixed:10s", 1000)
    (line,) = lines
    assert (line["action"], line["queue"], line["outcome"]) == ("configure", "emails", "done")
    assert line["changes"] == [
        "rate: 100/s → 50/s",
        "events: none → 1000",
        "max_retries: 3 → none",
        "backoff: none → fixed:10s",
    ]
    assert "emails is configured: rate: 100/s → 50/s;" in words(client.get(QUEUE).text)


def test_equivalent_setting_is_not_a_change(client: Client):
    assert "No changes." in words(preview(client, rate="100/1s").text)


def test_preview_leads_back_to_the_filled_form(client: Client):
    page = apply(client, preview(client, rate="7/s", max_dead="5").text, "change").text
    assert (typed(page, "rate"), typed(page, "max_dead"), typed(page, "max_retries")) == ("7/s", "5", "3")


def test_changes_of_somebody_else_are_not_overwritten(client: Client, queue: Queue):
    page = preview(client, rate="50/s").text
    queue.configure(rate="10/s")
    answer = apply(client, page)
    assert (answer.status_code, typed(answer.text, "rate")) == (409, "50/s")
    assert "Somebody else has configured the queue" in words(answer.text)
    assert queue.configuration().rate == "10/s"


def test_form_sent_twice_configures_once(client: Client, lines: list[Any]):
    page = preview(client, rate="50/s").text
    apply(client, page)
    assert "No changes." in words(client.get(apply(client, page).headers["location"]).text)
    assert len(lines) == 1


def test_preview_says_how_many_dead_letters_are_purged(client: Client, queue: Queue):
    queue.configure(rate=None)
    queue.send_many([Outgoing(n) for n in range(5)])
    for message in queue.receive(5):
        message.reject("no luck")
    assert "The oldest 3 dead letters will be purged within a minute." in words(preview(client, max_dead="2").text)
    assert "purged" not in words(preview(client, max_dead="5").text)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("rate", "100", "has no unit of time"),
        ("concurrency", "many", "'many' is not a whole number from 1 to 1,000,000"),
        ("concurrency_per_key", "0", "is not a whole number from 1 to 1,000,000"),
        ("max_retries", "2000000", "is not a whole number from 0 to 1,000,000"),
        ("backoff", "often", "'often'"),
        ("max_dead", "-1", "is not a whole number"),
        ("events", "0", "a whole number from 1 to 10,000,000"),
    ],
)
def test_invalid_setting_comes_back_with_the_reason(client: Client, queue: Queue, name: str, value: str, expected: str):
    before = queue.configuration()
    answer = preview(client, **{name: value})
    assert (answer.status_code, wrong(answer.text)[0], typed(answer.text, name)) == (400, name, value)
    assert expected in wrong(answer.text)[1]
    assert queue.configuration() == before


def test_limit_of_a_queue_with_shards_is_refused_before_the_preview(enter: Enter, redis_server: RedisServer):
    with Queue("emails", url=redis_server.url, shards=2) as queue:
        queue.configure(max_retries=3)
        client = enter()
        answer = preview(client, rate="100/s")
        assert (answer.status_code, "takes no rate, concurrency or length" in words(answer.text)) == (400, True)
        assert preview(client, max_retries="4").status_code == 200


def test_viewer_sees_the_settings_without_a_form(enter: Enter, queue: Queue):
    queue.configure(rate="100/s")
    client = enter(read_only=True)
    assert "Maximum rate 100/s" in words(client.get(PATH).text)
    assert "Configure" not in words(client.get(QUEUE).text)
