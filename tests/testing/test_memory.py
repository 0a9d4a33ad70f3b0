"""A queue is in memory during a test, and is restored afterwards."""

from __future__ import annotations

import datetime as dt
import re
import sys
from typing import Any

import pytest
import redis

from delayq import Consumer, Queue
from delayq.errors import InvalidInput, InvalidTime, ServerUnreachable
from delayq.model.extras import install
from delayq.testing import Clock, in_memory
from tests.harness.servers import RedisServer


def test_queue_in_memory_needs_no_server(emails: Queue):
    with in_memory(emails):
        emails.send("x", id="a")
        (message,) = emails.receive()
        message.ack()
        assert emails.stats().acked == 1
    with pytest.raises(ServerUnreachable):
        emails.send("x")


def test_queue_in_memory_refuses_headers_of_delayq(emails: Queue):
    with in_memory(emails):
        with pytest.raises(InvalidInput, match="rename it or leave it out"):
            emails.send("x", headers={"delayq-slot": 1})
        assert emails.stats().sent == 0


def test_queue_returns_to_its_server_with_everything_it_held(redis_server: RedisServer):
    with Queue("jobs", url=redis_server.url) as jobs:
        jobs.send("real", id="a")
        assert jobs.receive(wait=0.01)[0].payload == "real"
        with in_memory(jobs) as clock:
            assert jobs.stats().inside == 0
            jobs.send("in memory", id="a", delay=5)
            clock.advance(5)
            assert [message.payload for message in jobs.receive(wait=0.01)] == ["in memory"]
            jobs.dead.purge()
        assert jobs.stats().sent == 1
        found = jobs.get("a")
        assert found is not None
        assert (found.state, found.payload) == ("unack", "real")
        assert not jobs.send("real, too").id.startswith("message-")
        assert [message.payload for message in jobs.receive(wait=5)] == ["real, too"]


def test_server_gets_no_commands_while_its_queue_is_in_memory(redis_server: RedisServer, redis_client: redis.Redis):
    def commands() -> int:
        count: int = redis_client.info("stats")["total_commands_processed"]
        return count

    with Queue("jobs", url=redis_server.url) as jobs:
        jobs.receive(wait=0.01)
        before = commands()
        with in_memory(jobs):
            jobs.send("x", delay=1)
            assert jobs.receive(wait=0.01) == []
        assert commands() == before + 1  # the INFO command itself


def test_queue_keeps_its_number_of_shards():
    with Queue("jobs", url="redis://127.0.0.1:1/0", shards=3) as jobs, in_memory(jobs) as clock:
        for n in range(20):
            jobs.send(n)
        assert len(jobs._context.shards) == 3
        assert len(jobs.receive(20)) == 20
        assert len(clock.client.keys("*:stats")) == 3


def test_handler_registered_by_a_test_is_removed_at_its_end(emails: Queue):
    def of_life(message: Any) -> None: ...

    emails.handler(of_life)
    with in_memory(emails) as clock:
        emails.handler(lambda message: clock.handled.append(message.id))
        assert emails.handlers.main is not of_life
    assert emails.handlers.main is of_life


def test_queue_is_restored_after_a_failed_test(emails: Queue):
    before = emails._context.clock
    with pytest.raises(ZeroDivisionError), in_memory(emails):
        raise ZeroDivisionError
    assert emails._context.clock is before


def test_queues_share_one_server_and_one_clock(emails: Queue, orders: Queue, clock: Clock):
    emails.send("x")
    orders.send("y")
    assert set(clock.client.keys("*:stats")) == {b"delayq:{emails}:stats", b"delayq:{orders}:stats"}
    assert emails._context.clock is orders._context.clock is clock


def test_each_test_begins_with_an_empty_server(emails: Queue):
    for _ in range(2):
        with in_memory(emails):
            assert emails.stats().sent == 0
            assert emails.send("x").id == "message-000001"


def test_nested_block_has_its_own_server(emails: Queue):
    with in_memory(emails):
        emails.send("outer")
        with in_memory(emails):
            assert emails.peek() == []
        assert [info.payload for info in emails.peek()] == ["outer"]


def test_clock_makes_queues_in_memory(clock: Clock):
    jobs = clock.queue("jobs", max_retries=7)
    jobs.send("x", delay=60)
    assert jobs.peek()[0].max_retries == 7
    clock.advance(minutes=1)
    assert len(jobs.receive()) == 1


def test_consumer_with_threads_serves_a_queue_in_memory(emails: Queue, clock: Clock):
    seen: list[Any] = []
    emails.send("now")
    emails.send("later", delay=60)
    consumer = Consumer(emails, lambda message: seen.append(message.payload))
    assert (consumer.drain(), seen) == (1, ["now"])
    clock.advance(minutes=1)
    assert (consumer.drain(), seen) == (1, ["now", "later"])


def test_clock_does_not_move_by_itself(emails: Queue):
    with in_memory(emails, start=dt.datetime(2030, 1, 1, tzinfo=dt.UTC)) as clock:
        due = emails.send("x", delay=dt.timedelta(hours=2)).due_at
        assert due == dt.datetime(2030, 1, 1, 2, tzinfo=dt.UTC)
        clock.advance(hours=1, minutes=59, seconds=59, milliseconds=999)
        assert emails.receive() == []
        clock.advance(0.001)
        assert clock.now() == due
        assert len(emails.receive()) == 1
        assert repr(clock) == "<Clock 2030-01-01T02:00:00+00:00>"


def test_clock_starts_at_the_present(clock: Clock):
    assert abs(clock.now() - dt.datetime.now(dt.UTC)) < dt.timedelta(minutes=1)


def test_clock_moves_time_travel_libraries_too(emails: Queue):
    class Traveller:
        def move_to(self, destination: dt.datetime) -> None:
            moments.append(destination)

    moments: list[dt.datetime] = []
    start = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
    seen = []
    with in_memory(emails, start=start, traveller=Traveller()) as clock:
        emails.handler(lambda message: seen.append((message.payload, moments[-1] - start)))
        for seconds in (30, 10):
            emails.send(seconds, delay=seconds)
        clock.run_for(minutes=1)
    assert seen == [(seconds, dt.timedelta(seconds=seconds)) for seconds in (10, 30)]
    assert (moments[0], moments[-1]) == (start, start + dt.timedelta(minutes=1))


BAD: dict[str, Any] = {
    "backwards": (lambda clock: clock.advance(-1), "the time to pass -1 is not 0 or more"),
    "backwards-hours": (lambda clock: clock.advance(hours=-1), "is not 0 or more"),
    "words": (lambda clock: clock.advance("an hour"), "'an hour' is not a time"),
    "words-in-hours": (lambda clock: clock.advance(hours="two"), "give numbers of days, hours"),
    "unknown-unit": (lambda clock: clock.advance(hour=2), "'hour'"),
    "endless": (lambda clock: clock.run_for(days=10**6 * 4), "past the year 9999"),
    "over": (lambda clock: clock.run_until(dt.datetime(2000, 1, 1, tzinfo=dt.UTC)), "is in the past: the clock is at"),
    "naive": (lambda clock: clock.run_until(dt.datetime(2100, 1, 1)), "is naive"),  # noqa: DTZ001
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_time_moves_nothing(clock: Clock, name: str):
    call, why = BAD[name]
    before = clock.ms
    with pytest.raises(InvalidTime, match=why):
        call(clock)
    assert clock.ms == before


def test_objects_that_cannot_be_in_memory_are_refused(emails: Queue, clock: Clock):
    before = emails._context.clock
    with pytest.raises(InvalidInput, match="emails is already in memory"):
        clock.add(emails)
    with pytest.raises(InvalidInput, match="got 'emails'"):
        clock.add("emails")  # type: ignore[arg-type]
    assert emails._context.clock is before


def test_missing_package_is_named_with_how_to_install_it(emails: Queue, monkeypatch: pytest.MonkeyPatch):
    for package in ("fakeredis", "lupa"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(
                ModuleNotFoundError, match=rf"needs {package}.*{re.escape(install('testing'))}"
            ) as caught:
                in_memory(emails).__enter__()
            assert caught.value.name == package
    with pytest.raises(ServerUnreachable):
        emails.stats()


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, "all"])
def test_invalid_limit_is_refused(emails: Queue, clock: Clock, limit: Any):
    emails.handler(print)
    with pytest.raises(InvalidInput, match="is not a number of messages, 1 or more"):
        clock.run_due(limit=limit)


def test_queue_that_is_not_in_memory_is_not_handled(clock: Clock):
    with Queue("elsewhere", url="redis://127.0.0.1:1/0") as elsewhere:
        elsewhere.handler(print)
        with pytest.raises(InvalidInput, match="elsewhere is not in memory: give it to in_memory"):
            clock.run_due(elsewhere)
    with pytest.raises(InvalidInput, match="no queue is in memory"):
        Clock().run_due()


def test_registrations_inside_the_block_are_removed():
    queue = Queue("emails", url="redis://127.0.0.1:1/0")
    queue.cron("@daily", name="before")(print)
    for _ in range(2):
        with in_memory(queue):
            queue.cron("@daily", name="within")(print)
            queue.middleware.before_send(lambda outgoing: outgoing)
            assert queue.middleware.has_sends
            assert len(queue.handlers.named) == 2
    assert not queue.middleware.has_sends
    assert [each.name for each in queue.handlers.prepared] == ["before"]
    assert len(queue.handlers.named) == 1
