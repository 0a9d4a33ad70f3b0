"""Which function handles a message."""

from __future__ import annotations

from collections.abc import Iterator

import fakeredis
import pytest

from delayq import Consumer, Message, Queue
from delayq.errors import HandlerMissing, InvalidInput


@pytest.fixture
def client() -> Iterator[fakeredis.FakeRedis]:
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        yield client


@pytest.fixture
def queue(client: fakeredis.FakeRedis) -> Iterator[Queue]:
    with Queue("jobs", redis=client) as queue:
        yield queue


def test_occurrences_go_to_their_function_and_other_messages_to_the_handler(queue: Queue):
    seen: list[tuple[str, object]] = []

    @queue.cron("0 3 * * *", payload={"full": True})
    def nightly(message: Message) -> None:
        seen.append(("nightly", message.payload))

    @queue.cron("@yearly", name="by-the-year")
    def yearly(message: Message) -> None:
        seen.append(("yearly", message.payload))

    @queue.handler
    def others(message: Message) -> None:
        seen.append(("others", message.payload))

    Consumer(queue).drain()
    assert [(each.name, each.when, each.own) for each in queue.schedules.list()] == [
        ("by-the-year", "@yearly", True),
        ("nightly", "0 3 * * *", True),
    ]
    queue.schedules.add("plain", "@daily", "added")
    for name in ("nightly", "by-the-year", "plain"):
        queue.schedules.run_now(name)
    queue.send("sent")
    assert Consumer(queue, concurrency=1).drain() == 4
    assert sorted(seen, key=str) == [
        ("nightly", {"full": True}),
        ("others", "added"),
        ("others", "sent"),
        ("yearly", None),
    ]


def test_decorator_does_not_connect(queue: Queue, client: fakeredis.FakeRedis):
    queue.cron("@daily")(print)
    assert client.keys("*") == []


def test_consumer_without_the_function_of_a_schedule_does_not_swallow_its_messages(
    queue: Queue, client: fakeredis.FakeRedis
):
    queue.cron("@daily", name="nightly", max_retries=0)(print)
    Consumer(queue).drain()
    queue.schedules.run_now("nightly")
    with Queue("jobs", redis=client) as other:
        seen: list[Message] = []
        assert Consumer(other, seen.append).drain() == 1
        (dead,) = other.dead.list()
    assert seen == []
    assert dead.reason == "retries-exhausted"
    assert dead.error is not None
    assert dead.error.startswith("HandlerMissing: schedule 'nightly' has no handler here")
    assert dead.error.endswith("remove the old schedule: delayq cron remove jobs nightly")


def test_queue_with_only_schedules_does_not_swallow_other_messages(queue: Queue):
    queue.cron("@daily")(print)
    queue.send("x", max_retries=0)
    assert Consumer(queue).drain() == 1
    (dead,) = queue.dead.list()
    assert dead.error is not None
    assert dead.error.startswith("HandlerMissing: queue jobs has no handler here")


def test_queue_without_any_handler_has_no_consumer(queue: Queue):
    with pytest.raises(HandlerMissing, match="decorate"):
        Consumer(queue)


def test_two_functions_for_one_schedule_are_refused(queue: Queue):
    queue.cron("@daily", name="nightly")(print)
    with pytest.raises(InvalidInput, match="another name"):
        queue.cron("@hourly", name="nightly")(print)


def test_bad_schedule_is_refused_at_its_decorator(queue: Queue):
    with pytest.raises(InvalidInput, match="minute"):
        queue.cron("61 * * * *")
    with pytest.raises(InvalidInput, match="not callable"):
        queue.cron("@daily")(5)  # type: ignore[type-var]  # on purpose
    with pytest.raises(InvalidInput, match="schedule name"):
        queue.cron("@daily", name="")(print)


def test_changed_decorator_changes_the_stored_schedule(queue: Queue, client: fakeredis.FakeRedis):
    queue.cron("@daily", name="nightly")(print)
    Consumer(queue).drain()
    with Queue("jobs", redis=client) as newer:
        newer.cron("@hourly", name="nightly")(print)
        Consumer(newer).drain()
        (stored,) = newer.schedules.list()
        assert stored.when == "@hourly"
        assert len(newer.peek("pending")) == 1
