"""The card of a queue's limits: how much is in use and held back."""

from __future__ import annotations

from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from delayq import Outgoing, Queue
from delayq.web.pages import queue as queue_page
from tests.harness.servers import RedisServer
from tests.web.conftest import Enter
from tests.web.test_messages import words

QUEUE = "/main/queues/emails"


@pytest.fixture
def limited(redis_server: RedisServer) -> Iterator[Queue]:
    """Six messages of the tenant ``big`` and one of ``<i>small</i>``; three of the seven are running."""
    options: dict[str, Any] = {"rate": "100/h", "concurrency": 20, "concurrency_per_key": 2}
    with Queue("emails", url=redis_server.url, concurrency_key=lambda each: each.headers["tenant"], **options) as queue:
        tenants = ["big"] * 6 + ["<i>small</i>"]
        queue.send_many([Outgoing(n, headers={"tenant": tenant}) for n, tenant in enumerate(tenants)])
        assert len(queue.receive(10)) == 3
        yield queue


def card(text: str) -> str:
    """Return the text of the card on a page or in a part."""
    return words("<main>" + text.partition('<section id="limits"')[2])


def test_queue_without_limits_has_no_limits_card(enter: Enter, queue: Queue):
    queue.send("x", delay=60)
    client = enter()
    assert 'id="limits"' not in client.get(QUEUE).text
    assert client.get(f"{QUEUE}/limits").text.strip() == ""


@pytest.mark.parametrize("path", [QUEUE, f"{QUEUE}/limits"])
def test_limits_show_what_is_in_use_and_held_back(enter: Enter, limited: Queue, path: str):
    text = card(enter().get(path).text)
    assert "rate 100/h 3 of 100 handed out within 1h nothing" in text
    assert "concurrency 20 3 of 20 running nothing" in text
    assert "concurrency per key 2 by 2 keys 4 waiting for others with the same key" in text
    assert "big 2 of 2 4 <i>small</i> 1 of 2 0" in text
    assert limited.stats().unack == 3


def test_bounded_queue_shows_its_length_and_whether_it_is_full(enter: Enter, queue: Queue):
    queue.send_many([Outgoing(n) for n in range(3)])
    client = enter()
    for most, held in ((4, "nothing"), (3, "new messages are refused")):
        queue.configure(max_length=most)
        assert f"max length {most} 3 of {most} waiting or running {held}" in card(client.get(f"{QUEUE}/limits").text)


def test_exhausted_limit_shows_how_many_messages_wait_and_until_when(enter: Enter, limited: Queue):
    limited.configure(rate="3/h", concurrency=3, concurrency_per_key=None)
    text = card(enter().get(f"{QUEUE}/limits").text)
    assert "rate 3/h 3 of 3 handed out within 1h 4 due concurrency" in text
    assert "concurrency 3 3 of 3 running 4 due" in text
    limited.configure(concurrency=None)
    text = card(enter().get(f"{QUEUE}/limits").text)
    assert "4 due; the next can run in " in text


def test_redaction_hides_keys_but_shows_their_counts(enter: Enter, limited: Queue):
    text = enter(redact=["tenant"]).get(QUEUE).text
    assert "[redacted] 2 of 2 4 [redacted] 1 of 2 0" in card(text)
    assert "big" not in text
    assert limited.stats().unack == 3


def test_limits_of_a_paused_queue_hold_back_nothing(enter: Enter, limited: Queue):
    limited.pause()
    assert "3 of 20 running the queue is paused" in words(enter().get(QUEUE).text)


def test_only_the_busiest_keys_are_listed_and_the_page_says_so(
    enter: Enter, limited: Queue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(queue_page, "MOST_LISTED", 1)
    text = unescape(enter().get(QUEUE).text)
    assert "The 1 key with the most waiting messages, of 2." in text
    assert "small" not in text
    assert limited.stats().unack == 3
