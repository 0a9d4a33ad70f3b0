"""The counts on the tabs of a queue's pages."""

from __future__ import annotations

import json
import re

import pytest

from delayq import Outgoing, Queue
from delayq.protocol.operation import execute
from delayq.web import app
from tests.web.conftest import Enter, Follow, Serve, act
from tests.web.test_every_route import FILES, ROUTES

QUEUE = "/main/queues/emails"
STEPS = {"server": "main", "queue": "emails", "id": "d1", "schedule": "a"}
PARTS = {"queue-live", "charts", "limits", "found", "life", "matches"}
"""Routes of a queue that are not pages."""
PAGES = sorted(
    route.name
    for route in ROUTES
    if "queue" in route.param_convertors and "GET" in (route.methods or ()) and route.name not in PARTS | FILES
)


@pytest.fixture
def stocked(queue: Queue) -> Queue:
    """Four messages (one is retrying), two dead letters, three schedules and a consumer."""
    queue.send_many([Outgoing(n, id=f"d{n}") for n in range(3)])
    for message in queue.receive(3):
        message.nack(delay=60) if message.id == "d0" else message.reject("no luck")
    for name in "abc":
        queue.schedules.add(name, "every 1h")
    queue.schedules.pause("c")
    queue.send("x", delay=60)
    appear(queue)
    return queue


def appear(queue: Queue) -> None:
    fields = {"host": "h", "pid": 1, "version": "1", "age": 0, "concurrency": 8, "handled": 0, "failed": 0}
    note = queue._context.shards[0].heartbeat("worker", json.dumps(fields | {"holds": [], "count": 0}).encode())
    queue._executor.execute(execute(note))


def counts(page: str) -> dict[str, str]:
    """Return the counts after the titles of the tabs."""
    (tabs,) = re.findall(r'<nav class="tabs".*?</nav>', page, re.DOTALL)
    found = re.findall(r"<a [^>]*>([^<]*?)(?: <span[^>]*>([^<]*)</span>)?</a>", tabs)
    return dict(found)


@pytest.mark.parametrize("name", PAGES)
def test_tabs_of_each_queue_page_have_counts(enter: Enter, stocked: Queue, name: str):
    route = next(each for each in ROUTES if each.name == name)
    page = enter().get(
        app("redis://127.0.0.1:1").url_path_for(name, **{each: STEPS[each] for each in route.param_convertors})
    )
    assert page.status_code == 200
    alive = sum(each.is_alive for each in stocked.consumers())  # a program that has received counts too
    expected = {"Now": "", "Messages": "4", "Dead letters": "2", "Schedules": "3", "Consumers": str(alive)}
    assert counts(page.text) == expected


def test_tabs_of_a_confirmation_have_counts(enter: Enter, stocked: Queue):
    page = act(enter(), f"{QUEUE}/confirm", act="requeue", all="1", state="dead")
    assert (page.status_code, counts(page.text)["Dead letters"]) == (200, "2")
    assert stocked.stats().dead == 2


def test_tabs_show_no_unknown_count(enter: Enter, stocked: Queue):
    page = enter().get(f"{QUEUE}/messages/none/edit")
    assert (page.status_code, set(counts(page.text).values())) == (404, {""})
    assert stocked.stats().dead == 2


def test_tabs_of_a_live_page_have_current_counts(serve: Serve, stocked: Queue, follow: Follow):
    follower = follow(f"{serve()}{QUEUE}/live")
    assert follower.has_seen('<span id="count-dead">2</span>')
    stocked.cancel("d1")
    assert follower.has_seen('<span id="count-dead">1</span>')
