"""No page and no answer of the API shows a hidden value, however it is encoded. This covers new routes, too."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from starlette.routing import Route

from delayq import Consumer, Outgoing, Queue, Topic
from delayq.model.envelope import Envelope
from delayq.web import app
from delayq.web.redaction import Redaction
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.harness.web.encodings import NAMES, SECRET, cases, shows_secret
from tests.harness.web.following import Follower
from tests.web.conftest import Client, Enter, Follow, Serve
from tests.web.test_actions import QUEUE, send
from tests.web.test_every_route import quoted_path
from tests.web.test_messages import words

BATCH = 50  # cases that are stored at once
CASES = [value for name in NAMES for _, value in cases(name)][::17]  # test_redaction tries all of them
QUICK = CASES[::41]
ROUTES = [
    route for route in app("redis://127.0.0.1:1").routes if isinstance(route, Route) and "GET" in (route.methods or ())
]
STREAMS = [route for route in ROUTES if re.search("live$|stream", route.path)]
QUERIES = [
    "",
    "?state=dead",
    "?state=retry",
    "?state=dead&where=error&text=a",
    "?state=dead&error=a",
    "?where=payload&text=a",
    "?whole=1",
    "?newest_first=true",
]


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class Stock:
    """A queue and a topic that hold each case in each place where the dashboard may show it.

    Attributes:
        names: what the parameters of paths may be.
    """

    def __init__(self, queue: Queue, topic: Topic, values: Sequence[Any]) -> None:
        queue.configure(events=True)
        self.names: dict[str, list[str]] = {
            "server": ["main"],
            "queue": ["emails"],
            "topic": ["orders"],
            "group": ["billing"],
            "id": [],
            "letter": [],
            "schedule": [],
            "job": [],
            "file": ["style.css"],
        }
        self._run(queue, values)
        for number, value in enumerate(values):
            self._send(queue, number, value)
        self._publish(topic, values)

    def _run(self, queue: Queue, values: Sequence[Any]) -> None:
        """Run tasks with results: one returns its argument, others raise it, and are dead, gone or to be retried."""
        with Queue(queue.name, redis=queue._executor.client) as known:

            @known.task
            def echo(kept: str, note: Any) -> Any:
                return [kept, note]

            @known.task
            def fail(note: Any) -> None:
                raise ValueError(text_of(note))

            for number, value in enumerate(values):
                arguments = {"kept": f"innocent {number}.", "note": value}
                known.send(arguments, id=f"done-{number}", task="echo", results=60)
                for name, retries in (("failed", 0), ("retried", 9), ("purged", 0)):
                    options: dict[str, Any] = {
                        "id": f"{name}-{number}",
                        "task": "fail",
                        "results": 60,
                        "max_retries": retries,
                    }
                    known.send({"note": value}, **options)
                self.names["id"] += [f"{each}-{number}" for each in ("done", "failed", "retried", "purged")]
            Consumer(known).drain()
        purged = [each for each in self.names["id"] if each.startswith("purged")]
        assert set(map(queue.cancel, purged)) == {"cancelled"}
        queue.collect_garbage()

    def _send(self, queue: Queue, number: int, value: Any) -> None:
        text = text_of(value)
        payload, headers = {"kept": f"innocent {number}.", "note": value}, {"note": text}
        for name in ("dead", "retry"):
            queue.send(payload, id=f"{name}-{number}", headers=headers)
        queue.schedules.add(f"hourly-{number}", "every 1h", payload, headers=headers)
        occurrence = queue.schedules.run_now(f"hourly-{number}").id
        for message in queue.receive(3):
            message.reject(text, error=text) if message.id.startswith("dead") else message.nack(delay=600, error=text)
        queue.send(payload, id=f"running-{number}")
        (running,) = queue.receive()
        running.progress(1, text=text)
        bodies = {"json": value, "text": text, "bytes": text.encode()}
        queue.send_many([Outgoing(body, id=f"{name}-{number}", delay=60) for name, body in bodies.items()])
        self.names["id"] += [occurrence, *(f"{name}-{number}" for name in ("dead", "retry", "running", *bodies))]
        self.names["schedule"].append(f"hourly-{number}")

    def _publish(self, topic: Topic, values: Sequence[Any]) -> None:
        group, client = topic.group("billing", start="0"), topic._executor.client
        for number, value in enumerate(values):
            text = text_of(value)
            topic.publish({"kept": f"innocent {number}.", "note": value}, headers={"note": text})
            client.xadd(topic._context.shards[0].keys.stream, {"kept": "1", "note": text})
            for record in group.poll("first"):
                group.bury(record, "first", text, text)

    def paths(self, route: Route) -> list[str]:
        """Return the paths of a route for all that is stored."""
        found = itertools.product(*(self.names[each] for each in route.param_convertors))
        return [
            quoted_path(route.url_path_for(route.name, **dict(zip(route.param_convertors, each, strict=True))))
            for each in found
        ]


@pytest.fixture
def topic(redis_server: RedisServer) -> Iterator[Topic]:
    with Topic("orders", url=redis_server.url) as topic:
        yield topic


def stocked_with(values: Sequence[Any], queue: Queue, topic: Topic, client: Client) -> Stock:
    stock = Stock(queue, topic, values)
    path = "/main/topics/orders/groups/billing/dead"
    link = path
    while link:
        page = client.get(link).text
        stock.names["letter"] += re.findall(r'letters/([0-9.-]+)"', page)
        following = re.search(r'href="([^"]*after=[^"]*)"', page)
        link = f"{path}?{following[1].partition('?')[2]}" if following else ""
    form = {"act": "requeue", "all": "1", "state": "dead", "error": f"password={SECRET}", "dry": "1", "once": "1"}
    stock.names["job"] = [send(client, f"{QUEUE}/run", **form).headers["location"].rpartition("/")[2]]
    assert len(stock.names["letter"]) == 2 * len(values)
    return stock


@pytest.mark.by_lot(8)
@pytest.mark.parametrize(
    "values",
    [
        pytest.param(QUICK, id="quick"),
        *(
            pytest.param(CASES[start : start + BATCH], id=str(start), marks=pytest.mark.full)
            for start in range(0, len(CASES), BATCH)
        ),
    ],
)
def test_no_route_shows_a_hidden_value(enter: Enter, queue: Queue, topic: Topic, values: list[Any]):
    lines: list[Any] = []
    client = enter(redact=NAMES, audit=lines.append)
    stock, shown = stocked_with(values, queue, topic, client), list[str]()
    for route in ROUTES:
        if route in STREAMS:
            continue
        is_list = not {"id", "letter", "schedule"}.intersection(route.param_convertors)
        paths = [path + query for path in stock.paths(route) for query in (QUERIES if is_list else ("", "?whole=1"))]
        if route.name == "compose":
            paths += [f"{path}?copy={each}" for path in stock.paths(route) for each in stock.names["id"]]
        for path in paths:
            answer = client.get(path)
            assert answer.status_code < 500, path
            if shows_secret(answer.text + str(answer.headers)):
                shown.append(path)
    for act, state in (("requeue", "dead"), ("cancel", "retry"), ("cancel", "pending")):
        answer = send(client, f"{QUEUE}/confirm", act=act, all="1", state=state)
        assert answer.status_code == 200
        shown += [f"confirm {act}"] * shows_secret(answer.text)
    for number in range(len(values)):
        page = client.get(f"{QUEUE}/messages/dead-{number}").text
        assert f"innocent {number}." in page
    assert shown == []
    assert not shows_secret(str(lines))


def test_lists_let_others_have_their_turn_between_two_payloads(
    enter: Enter, queue: Queue, topic: Topic, monkeypatch: pytest.MonkeyPatch
):
    """A payload of a megabyte can take a second: a list of twenty would stop the dashboard for all."""
    client = enter(redact=NAMES)
    stock, real, turns, at = stocked_with(QUICK, queue, topic, client), Redaction.envelope, list[None](), list[int]()

    def slow(redaction: Redaction, envelope: Envelope) -> Envelope:
        at.append(len(turns))
        asyncio.get_running_loop().call_soon(turns.append, None)
        return real(redaction, envelope)

    monkeypatch.setattr(Redaction, "envelope", slow)
    asked, together = 0, list[str]()
    for route in ROUTES:
        if route not in STREAMS and not {"id", "letter", "schedule"}.intersection(route.param_convertors):
            for path in stock.paths(route):
                at.clear()
                client.get(path, params={"state": "pending"} if "messages" in path else None)
                asked += len(at) > 1
                together += [path] * (len(set(at)) < len(at))
    assert asked >= 5
    assert together == []


def test_large_payload_is_not_searched_for_its_preview(enter: Enter, topic: Topic):
    topic.publish({"kept": "x" * 20_000})
    for redact, expected in (([], "xxx"), (NAMES, "(19.5 KiB)")):
        assert expected in enter(redact=redact).get("/main/topics/orders").text


@pytest.mark.parametrize("route", STREAMS, ids=lambda each: each.name)
@pytest.mark.full
def test_no_stream_shows_a_hidden_value(
    enter: Enter, serve: Serve, follow: Follow, queue: Queue, topic: Topic, route: Route
):
    stock = stocked_with(QUICK, queue, topic, enter(redact=NAMES))
    url = serve(redact=NAMES)
    for path in stock.paths(route):
        follower = follow(url + path)
        assert eventually(partial(_answers, follower))
        assert not shows_secret(follower.text)


def _answers(follower: Follower) -> bool:
    return any(each in follower.text for each in ("data:", " 204 ", " 404 "))


def test_what_was_typed_is_not_in_the_audit_log_or_in_a_job(enter: Enter, queue: Queue):
    queue.send(1, id="m")
    lines: list[Any] = []
    client = enter(redact=NAMES, audit=lines.append)
    refused = send(client, f"{QUEUE}/send", once="1", kind="json", payload="1", headers=f"Password: {SECRET}")
    assert (refused.status_code, "write it like tenant=acme" in words(refused.text)) == (400, True)
    form = {"act": "requeue", "all": "1", "state": "dead", "error": f"password={SECRET}", "dry": "1", "once": "2"}
    send(client, f"{QUEUE}/run", **form)
    for path in ("/main/jobs", "/api/v1/servers/main/jobs"):
        assert "Requeue all dead with" in client.get(path).text
        assert not shows_secret(client.get(path).text)
    assert len(lines) >= 3
    assert not shows_secret(str(lines))
