"""What Sentry gets of sends, deliveries and schedules: by its real SDK, at a local endpoint."""

from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import redis
import sentry_sdk

from delayq import (
    Consumer,
    Message,
    Middleware,
    Outgoing,
    Queue,
    Reject,
    RetryAfter,
    Topic,
    TopicConsumer,
    aio,
    backoff,
)
from delayq.model.extras import install
from delayq.model.occurrence import Plan
from delayq.sentry import Sentry, monitor_config, monitor_slug
from tests.harness.servers import RedisServer

SECRET = "4242-4242"
Items = Callable[[str], list[Any]]


class Endpoint(BaseHTTPRequestHandler):
    """Keeps the items of the envelopes that it gets."""

    items: list[tuple[str, Any]]

    def do_POST(self) -> None:  # its name in http.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        lines = body.decode().splitlines()[1:]
        for header, payload in zip(lines[::2], lines[1::2], strict=False):
            self.items.append((json.loads(header)["type"], json.loads(payload)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def items() -> Iterator[Items]:
    """``items("event")``: what the endpoint of Sentry has got, of one type, in the order of arrival."""
    Endpoint.items = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        sentry_sdk.init(
            f"http://key@127.0.0.1:{server.server_port}/1",
            traces_sample_rate=1.0,
            default_integrations=False,  # they would change this process for good
        )

        def items(kind: str) -> list[Any]:
            sentry_sdk.flush(10)
            return [payload for each, payload in Endpoint.items if each == kind]

        yield items
        sentry_sdk.get_client().close(timeout=0)
        sentry_sdk.get_global_scope().set_client(None)
        server.shutdown()


@pytest.fixture
def queue(redis_client: redis.Redis) -> Iterator[Queue]:
    with Queue("orders", redis=redis_client, backoff=backoff.fixed(0)) as queue:
        yield queue


@pytest.fixture
def watched(queue: Queue) -> Queue:
    Sentry().instrument(queue)
    return queue


def fail(message: Message) -> None:
    raise ValueError(f"attempt {message.attempt}")


def test_trace_leads_from_the_request_through_the_send_to_the_delivery(watched: Queue, items: Items):
    with sentry_sdk.start_transaction(op="http.server", name="POST /orders"):
        sent = watched.send({"n": 1})
    Consumer(watched, lambda _: None).drain()
    request, process = items("transaction")
    (publish,) = request["spans"]
    assert (publish["op"], publish["description"]) == ("queue.publish", "orders")
    assert publish["data"]["messaging.message.id"] == sent.id
    assert publish["data"]["messaging.destination.name"] == "orders"
    trace = process["contexts"]["trace"]
    assert (process["transaction"], trace["op"], trace.get("status")) == ("orders", "queue.process", None)
    assert trace["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert trace["parent_span_id"] == publish["span_id"]
    data = trace["data"]
    assert {name: data[name] for name in data if name.startswith("messaging.") and "latency" not in name} == {
        "messaging.system": "delayq",
        "messaging.destination.name": "orders",
        "messaging.message.id": sent.id,
        "messaging.message.retry.count": 0,
        "messaging.message.body.size": 7,
    }
    assert data["messaging.message.receive.latency"] >= 0
    assert items("event") == []


def test_messages_of_a_batch_and_those_with_a_trace_keep_their_own(watched: Queue, items: Items):
    foreign = {"sentry-trace": f"{'a' * 32}-{'b' * 16}-1", "baggage": "user=1"}
    with sentry_sdk.start_transaction(name="request") as request:
        watched.send_many([Outgoing(1), Outgoing(2, headers=foreign), Outgoing(3, headers={"baggage": "user=2"})])
    seen: list[dict[str, Any]] = []
    Consumer(watched, lambda message: seen.append(message.headers), concurrency=1).drain()
    assert [each["sentry-trace"].split("-")[0] for each in seen] == [request.trace_id, "a" * 32, request.trace_id]
    assert seen[1]["baggage"] == "user=1"
    assert re.match(r"user=2,sentry-", seen[2]["baggage"])
    (publish,) = items("transaction")[0]["spans"]
    assert publish["data"]["messaging.batch.message_count"] == 3


def test_error_of_a_task_has_the_facts_of_its_message_and_no_payload(queue: Queue, items: Items):
    Sentry().instrument(queue)

    @queue.task
    def charge(card: str) -> None:
        copied = card
        raise ValueError("declined" if copied else "")

    sent = charge.options(max_retries=1).send(SECRET)
    Consumer(queue).run(max_messages=2)
    first, second = items("event")
    (raised,) = first["exception"]["values"]
    assert (raised["type"], raised["value"], first["transaction"]) == ("ValueError", "declined", "charge")
    assert raised["mechanism"] == {"type": "delayq", "handled": False}
    facts = first["contexts"]["delayq"]
    assert {name: facts[name] for name in ("queue", "id", "task", "schedule", "attempt", "max_retries")} == {
        "queue": "orders",
        "id": sent.id,
        "task": "charge",
        "schedule": None,
        "attempt": 1,
        "max_retries": 1,
    }
    assert first["tags"] == {"delayq.queue": "orders", "delayq.task": "charge"}
    assert second["contexts"]["delayq"]["attempt"] == 2
    assert first["contexts"]["trace"]["trace_id"] == items("transaction")[0]["contexts"]["trace"]["trace_id"]
    assert SECRET not in json.dumps(Endpoint.items)


def test_payload_is_sent_if_asked_for(queue: Queue, items: Items):
    Sentry(send_payload=True).instrument(queue)
    queue.send({"card": SECRET}, max_retries=0)
    Consumer(queue, fail).drain()
    (event,) = items("event")
    assert event["contexts"]["delayq"]["payload"] == {"card": SECRET}
    assert "vars" in event["exception"]["values"][0]["stacktrace"]["frames"][-1]


def test_with_only_dead_an_error_is_reported_once_the_message_is_dead(queue: Queue, items: Items):
    Sentry(only_dead=True).instrument(queue)
    queue.send("x", max_retries=2)
    Consumer(queue, fail).run(max_messages=3)
    assert [each["contexts"]["delayq"]["attempt"] for each in items("event")] == [3]


def test_decisions_of_a_handler_are_not_errors(watched: Queue, items: Items):
    def decide(message: Message) -> Any:
        if message.payload == "reject":
            raise Reject("no address")
        if message.payload == "later" and message.attempt == 1:
            raise RetryAfter(0)
        return message.payload != "false"

    for payload in ("reject", "later", "false"):
        watched.send(payload, max_retries=1)
    Consumer(watched, decide).drain()
    assert items("event") == []
    assert len(items("transaction")) == 5


class OwnError(BaseException):
    pass


@pytest.mark.parametrize("kind", [SystemExit, OwnError, asyncio.CancelledError, KeyboardInterrupt])
def test_every_exception_of_a_handler_is_an_error(queue: Queue, items: Items, kind: type[BaseException]):
    Sentry(monitor_schedules=True).instrument(queue)

    @queue.cron("* * * * *", name="nightly", max_retries=0)
    def nightly(_: Message) -> None:
        raise kind("of the handler")

    run_slot(queue)
    (event,) = items("event")
    assert event["exception"]["values"][0]["type"] == kind.__name__
    assert statuses(items) == ["in_progress", "error"]
    assert queue.stats().dead == 1


def test_cancel_that_a_handler_raises_is_an_error_and_that_of_a_stop_is_not(redis_server: RedisServer, items: Items):
    async def handled() -> None:
        async with aio.Queue("orders", url=redis_server.url, backoff=backoff.fixed(0)) as queue:
            Sentry().instrument(queue)
            begun = asyncio.Event()

            async def handle(message: aio.Message) -> None:
                if message.payload == "own":
                    raise asyncio.CancelledError("own")
                begun.set()
                await asyncio.sleep(60)

            await queue.send("own", max_retries=0)
            await aio.Consumer(queue, handle).drain()
            await queue.send("stopped", max_retries=0)
            consumer = aio.Consumer(queue, handle, shutdown_timeout=0)
            running = asyncio.create_task(consumer.run())
            await begun.wait()
            await consumer.stop()
            await running
            assert (await queue.stats()).dead == 1

    asyncio.run(handled())
    (event,) = items("event")
    assert event["exception"]["values"][0]["value"] == "own"


def test_occurrence_fails_if_its_handler_rejects_the_message_or_nacks_its_last_attempt(queue: Queue, items: Items):
    Sentry(monitor_schedules=True).instrument(queue)
    endings: list[Callable[[Message], object]] = [
        lambda message: message.reject("bad"),
        lambda message: message.nack(error="bad"),
        lambda message: message.nack(error="bad"),
        lambda _: False,
        lambda _: False,
        lambda message: message.ack(),
    ]
    todo = iter(endings)

    @queue.cron("* * * * *", name="nightly", max_retries=1, missed="all")
    def nightly(message: Message) -> Any:
        return next(todo)(message)

    for _ in range(4):
        run_slot(queue)
    by_slot: dict[str, list[str]] = {}
    for each in items("check_in"):
        by_slot.setdefault(each["check_in_id"], []).append(each["status"])
    rejected, nacked, returned_false, acked = by_slot.values()
    assert set(rejected) == set(nacked) == set(returned_false) == {"in_progress", "error"}
    assert acked == ["in_progress", "ok"]
    assert items("event") == []


def test_slot_is_done_once_its_handler_has_done_it(queue: Queue, items: Items):
    Sentry(monitor_schedules=True).instrument(queue)

    def ack_and_raise(message: Message) -> None:
        message.ack()
        raise Reject("too late to decide")

    endings: list[Callable[[Message], object]] = [
        lambda message: message.release(),
        ack_and_raise,
        lambda _: (each for each in [0]),
        lambda _: (each for each in [0]),
    ]
    todo = iter(endings)

    @queue.cron("* * * * *", name="nightly", max_retries=1, missed="all")
    def nightly(message: Message) -> Any:
        return next(todo)(message)

    for _ in range(2):
        run_slot(queue)
    by_slot: dict[str, list[str]] = {}
    for each in items("check_in"):
        by_slot.setdefault(each["check_in_id"], []).append(each["status"])
    released, returned_a_generator = by_slot.values()
    assert released == ["in_progress", "in_progress", "ok"]
    assert set(returned_a_generator) == {"in_progress", "error"}
    found = [event["exception"]["values"][0] for event in items("event")]
    assert {(each["type"], each["value"].partition(" an ")[0]) for each in found} == {
        ("TypeError", "the handler returned")
    }


def run_slot(queue: Queue) -> None:
    """Run the next slot of the only schedule now, with its retries."""
    if not queue.peek("pending"):
        Consumer(queue).drain()  # it arms the schedule
    (waiting,) = queue.peek("pending")
    queue.now([waiting.id])
    Consumer(queue, concurrency=1).drain()


def statuses(items: Items) -> list[str]:
    """The different statuses of the check-ins, in the order of arrival."""
    return list(dict.fromkeys(each["status"] for each in items("check_in")))


def test_stack_of_a_dead_letter_has_no_variables(watched: Queue, items: Items, redis_client: redis.Redis):
    sentry_sdk.get_client().options["attach_stacktrace"] = True
    watched.send("x", id="gone", delay=0, headers={"card": SECRET})
    redis_client.delete("delayq:{orders}:msg:gone")
    Consumer(watched, lambda _: None).drain()
    (event,) = items("event")
    (thread,) = event["threads"]["values"]
    assert thread["stacktrace"]["frames"]
    assert not any("vars" in frame for frame in thread["stacktrace"]["frames"])
    assert SECRET not in json.dumps(Endpoint.items)


@pytest.mark.usefixtures("items")
def test_send_outside_of_a_span_or_without_a_client_adds_no_headers(watched: Queue):
    watched.send("outside")
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(None)
    with sentry_sdk.start_transaction(name="request"):
        watched.send("without a client")
    assert [message.headers for message in watched.receive(2)] == [{}, {}]


def test_payload_that_does_not_match_is_an_error(watched: Queue, items: Items):
    watched.handler(takes_numbers)
    watched.send(["x"])
    Consumer(watched).drain()
    (event,) = items("event")
    assert event["exception"]["values"][-1]["type"] == "PayloadMismatch"


def takes_numbers(_: list[int]) -> None:
    raise AssertionError("it does not run")


def test_message_that_dies_without_a_handler_is_reported(
    watched: Queue, items: Items, redis_client: redis.Redis, redis_server: RedisServer
):
    watched.send("x", id="gone", delay=0)
    redis_client.delete("delayq:{orders}:msg:gone")
    Consumer(watched, lambda _: None).drain()

    async def slow() -> None:
        async with aio.Queue("slow", url=redis_server.url) as queue:
            Sentry().instrument(queue)
            await queue.send("x", id="slow", max_retries=0)
            await aio.Consumer(queue, wait, timeout=0.05).drain()

    async def wait(_: object) -> None:
        await asyncio.sleep(60)

    asyncio.run(slow())
    missing, stopped = items("event")
    assert (missing["message"], missing["contexts"]["delayq"]["id"]) == (
        "message dead-lettered: payload-missing",
        "gone",
    )
    assert stopped["contexts"]["dead letter"]["error"] == "TimeoutError: the handler took longer than 0.05 s: cancelled"


def test_async_deliveries_at_the_same_time_keep_their_traces_apart(redis_server: RedisServer, items: Items):
    async def handled() -> None:
        async with aio.Queue("orders", url=redis_server.url, backoff=backoff.fixed(0)) as queue:
            Sentry().instrument(queue)
            both = asyncio.Barrier(2)

            @queue.task
            async def meet(name: str) -> None:
                sentry_sdk.set_tag("name", name)
                await both.wait()
                raise ValueError(name)

            for name in ("a", "b"):
                with sentry_sdk.start_transaction(name="request"):
                    await meet.options(max_retries=0).send(name)
            await aio.Consumer(queue).drain()

    asyncio.run(handled())
    events = items("event")
    assert sorted((each["tags"]["name"], each["exception"]["values"][0]["value"]) for each in events) == [
        ("a", "a"),
        ("b", "b"),
    ]
    assert len({each["contexts"]["trace"]["trace_id"] for each in events}) == 2


def test_records_of_a_topic_are_reported(redis_client: redis.Redis, items: Items):
    def broken(_: object) -> None:
        raise ValueError("boom")

    with Topic("orders", redis=redis_client) as topic:
        middleware = Middleware()
        middleware.around_delivery(Sentry().processing)
        published = topic.publish("x")
        TopicConsumer(topic.group("billing", start="0"), broken, middleware=middleware).drain()
    event = items("event")[0]
    facts = event["contexts"]["delayq"]
    assert {name: facts[name] for name in ("topic", "id", "delivery")} == {
        "topic": "orders",
        "id": published.id,
        "delivery": 1,
    }
    assert event["tags"] == {"delayq.topic": "orders"}


def test_schedules_check_in(queue: Queue, items: Items):
    Sentry(monitor_schedules=True).instrument(queue)
    attempts: list[int] = []

    @queue.cron("* * * * *", name="Night Run", timezone="Europe/Berlin", max_retries=1, missed="all")
    def nightly(message: Message) -> None:
        attempts.append(message.attempt)
        if message.slot is None or len(attempts) < 4:
            raise ValueError("not yet")

    Consumer(queue).drain()
    for _ in range(2):  # the first slot fails for good, the second in its first attempt only
        (waiting,) = queue.peek("pending")
        queue.now([waiting.id])
        Consumer(queue, concurrency=1).drain()
    found = items("check_in")
    assert attempts == [1, 2, 1, 2]
    first, second = found[:4], found[4:]  # that the message is dead is said twice, of the same check-in
    assert [each["status"] for each in first] == [*["in_progress"] * 2, "error", "error"]
    assert [each["status"] for each in second] == [*["in_progress"] * 2, "ok"]
    assert len({each["check_in_id"] for each in first}) == len({each["check_in_id"] for each in second}) == 1
    assert first[0]["check_in_id"] != second[0]["check_in_id"]
    assert {each["monitor_slug"] for each in found} == {monitor_slug("orders", "Night Run")}
    assert found[0]["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "* * * * *"},
        "timezone": "Europe/Berlin",
    }
    assert found[-1]["duration"] >= 0


@pytest.mark.parametrize(
    ("when", "schedule"),
    [
        ("@daily", {"type": "crontab", "value": "0 0 * * *"}),
        ("every 90m", {"type": "interval", "value": 90, "unit": "minute"}),
        ("every 90s", None),
        ("30 0 3 * * *", None),
    ],
)
def test_monitors_have_the_schedules_that_sentry_knows(when: str, schedule: object):
    config = monitor_config(Plan(when))
    assert config == (schedule and {"schedule": schedule, "timezone": "UTC"})


def test_slug_has_the_characters_that_sentry_allows():
    assert monitor_slug("jobs", "nightly") == "jobs-nightly"
    assert re.fullmatch(r"jobs-eu-clean-up-daily-[0-9a-f]{8}", monitor_slug("Jobs/eu", "clean up: daily"))
    assert len(monitor_slug("q" * 30, "x" * 40)) == 50


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a-b", "c"), ("a", "b-c")),
        (("a/b", "c"), ("a", "b/c")),
        (("jobs", "Nightly"), ("jobs", "nightly")),
        (("q" * 40, "x" * 40), ("q" * 40, "x" * 41)),
        (("заказы", "ночь"), ("заказы", "день")),
        (("jobs", "nightly-"), ("jobs", "nightly")),
    ],
)
def test_schedules_with_different_names_have_different_slugs(one: tuple[str, str], other: tuple[str, str]):
    slugs = {monitor_slug(*one), monitor_slug(*other)}
    assert len(slugs) == 2
    assert all(re.fullmatch(r"(?!\d+$)[a-z0-9_-]{1,50}", slug) for slug in slugs)


def test_monitor_of_a_schedule_with_jitter_allows_for_it():
    config = monitor_config(Plan("0 3 * * *", jitter_ms=90_000))
    assert config is not None
    assert config["checkin_margin"] == 3


def test_without_sentry_sdk_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "sentry_sdk", None)
    monkeypatch.delitem(sys.modules, "delayq.sentry")
    with pytest.raises(ImportError, match=re.escape(install("sentry"))):
        importlib.import_module("delayq.sentry")
