"""Values overwritten by another program stop no consumer; messages are still handled."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest
import redis
from click.testing import CliRunner
from delayq.cli import main

from delayq import Consumer, Message, NewRecord, Outgoing, Queue, Topic, TopicConsumer, doctor
from delayq.model.record import Record
from delayq.web import app
from tests.harness.servers import RedisServer
from tests.web.conftest import Client

P = "delayq:{jobs}:"
HANGS_SECONDS = 120  # a loop in C, such as a huge power, cannot be interrupted: end the tests

PLANTED: dict[str, Callable[[Any], object]] = {
    "a counter that is no number": lambda client: client.hset(P + "stats", "acked", "many"),
    "a counter that the claim takes": lambda client: client.hset(P + "stats", "delivered", "many"),
    "a due time of -inf": lambda client: client.zadd(P + "pending", {"a": "-inf"}),
    "a retry of -inf": lambda client: (client.zrem(P + "pending", "a"), client.zadd(P + "retry", {"a": "-inf"})),
    "attempts that cannot be read": lambda client: client.hset(P + "attempts", "a", "often"),
    "attempts that are no text": lambda client: client.hset(P + "attempts", "a", b"\xff\xfe"),
}


@pytest.mark.parametrize("plant", PLANTED.values(), ids=PLANTED)
def test_consumer_handles_messages_despite_foreign_values(
    redis_server: RedisServer, redis_client: redis.Redis, plant: Callable[[Any], object]
):
    with Queue("jobs", url=redis_server.url) as queue:
        for name in ("a", "b"):
            queue.send(name, id=name)
        plant(redis_client)
        handled: list[str] = []
        assert Consumer(queue, lambda message: handled.append(message.id)).drain() == 2
        assert sorted(handled) == ["a", "b"]
        stats = queue.stats()
        assert (stats.inside, stats.unack) == (0, 0)
        doctor.examine(queue, repair=True)
        assert doctor.examine(queue).healthy


def test_lease_that_ended_at_minus_infinity_is_taken_back(redis_server: RedisServer, redis_client: redis.Redis):
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send("x", id="a")
        queue.receive()
        redis_client.zadd(P + "unack", {"a": "-inf"})
        handled: list[int] = []
        assert Consumer(queue, lambda message: handled.append(message.attempt)).drain() == 1
        assert handled == [2]


def test_topic_record_with_an_invalid_id_does_not_hold_up_others(redis_server: RedisServer, redis_client: redis.Redis):
    with Topic("news", url=redis_server.url) as topic:
        group = topic.group("readers", start="0")
        topic.publish("later", delay=0.001)
        (pending,) = [key for key in redis_client.keys("*") if redis_client.type(key) == b"zset"]
        redis_client.zadd(pending, {b"\xff\xfe": 1})
        handled: list[Any] = []

        def handle(record: Record) -> None:
            handled.append(record.payload)

        TopicConsumer(group, handle).drain()
        if not handled:  # it was not due yet
            TopicConsumer(group, handle).drain()
        assert handled == ["later"]
        assert redis_client.zcard(pending) == 0


NUMBERS = [
    *(b"", b"many", b"\xff\xfe", b"-1", b"0", b"1.5", b"nan", b"inf", b"1e308", b"400000000", b"9" * 18, b"9" * 5000),
    *(b"400000000.0.0.0", b"9" * 4300 + b".0.0.0", b"0.0.400000000.0", b"0.0.0.99999999999"),
]
SCORES = ["inf", "-inf", 1e308, -1e308, 0, -1, 1.5, 2**63, 253_402_300_800_000]
SOME = {b"", b"nan", b"400000000", b"9" * 5000, b"9" * 4300 + b".0.0.0"}
COMMANDS = [
    *("stats jobs --json", "peek jobs", "show jobs m3", "show jobs m1 --json", "why jobs m3", "dead list jobs"),
    *("cron list jobs --json", "configure jobs", "consumers jobs --json", "top jobs --once --json", "doctor jobs"),
]
PAGES = [
    *("/", "/main", "/main/queues/jobs", "/main/queues/jobs/messages/m1", "/main/queues/jobs/schedules"),
    *("/api/v1/servers/main/queues/jobs", "/api/v1/servers/main/queues/jobs/messages?state=dead", "/metrics"),
]


@pytest.fixture
def no_hang() -> Iterator[None]:
    faulthandler.dump_traceback_later(HANGS_SECONDS, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def stocked(redis_server: RedisServer, no_hang: None) -> Iterator[Queue]:  # noqa: ARG001
    """A queue with something in every structure."""
    with Queue("jobs", url=redis_server.url, concurrency_key=lambda _: "k") as queue:
        queue.configure(rate="1000/s", concurrency=100, concurrency_per_key=5, events=True, max_retries=3, max_dead=100)
        queue.send_many([Outgoing(number, id=f"m{number}") for number in range(8)])
        for name in ("daily", "hourly"):
            queue.schedules.add(name, "every 1d", {"a": 1})
        first, second, third, _ = queue.receive(4)
        first.nack(3600)
        second.reject("no")
        third.nack(0)
        for name in ("later", "gone"):
            queue.send("x", id=name, delay=3600)
        queue.cancel("gone")
        queue.sample()
        yield queue


def redis_client_url(client: redis.Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"


def overwrite(client: Any, key: Any, number: bytes, score: Any) -> None:
    """Put a value into all fields of a key; of the settings, not those that decide whether a client may open it."""
    kind = client.type(key)
    if kind == b"zset":
        client.zadd(key, dict.fromkeys(client.zrange(key, 0, -1), score))
    elif kind == b"hash":
        for field in set(client.hkeys(key)) - {b"format", b"shards"}:
            client.hset(key, field, number)
    elif kind == b"string" and b":msg:" not in key:
        client.set(key, number)
    elif kind == b"stream":
        ((_, fields),) = client.xrevrange(key, count=1)
        client.xadd(key, dict.fromkeys(fields, number))


def look(queue: Queue) -> None:
    """Read everything about a queue."""
    queue.stats(), queue.page(), queue.samples(), queue.consumers(), queue.configuration(), queue.upcoming()
    queue.schedules.list(), queue.dead.list()
    for state in ("pending", "ready", "unack", "retry", "dead"):
        queue.peek(state)
    for id in ("m0", "m1", "m2", "m3", "m5", "later"):
        queue.get(id), queue.why(id), queue.history(id)


def work(queue: Queue) -> None:
    """Take messages as programs and consumers do; half of them fail."""
    for message in queue.receive(2):
        message.nack()

    def handle(message: Message) -> None:
        assert message.id in ("m5", "m6", "m7")

    Consumer(queue, handle).drain()
    look(queue)
    doctor.examine(queue, repair=True)


CASES = [
    pytest.param(number, score, id=f"{number[:12]!r}-{len(number)}", marks=() if number in SOME else pytest.mark.full)
    for number, score in zip(NUMBERS, SCORES * 2, strict=False)
]


@pytest.mark.parametrize(("number", "score"), CASES)
def test_odd_values_in_all_structures_at_once_stop_nobody(
    stocked: Queue, redis_client: redis.Redis, number: bytes, score: Any
):
    for key in redis_client.keys(P + "*"):
        overwrite(redis_client, key, number, score)
    redis_client.hset(P + "stats", mapping={b"late:" + number: 1, "took:400000000": 1, "late:-1": 1, "late:63": 1})
    look(stocked)
    for words in COMMANDS:
        result = CliRunner().invoke(main, [*words.split(), "--url", redis_client_url(redis_client)])
        assert result.exit_code in (0, 1), (words, result.output, result.exception)
        assert result.exception is None or isinstance(result.exception, SystemExit), words
    with ExitStack() as stack:
        dashboard = app(servers={"main": redis_client_url(redis_client)})
        client = Client(dashboard)
        stack.callback(client.close, dashboard)
        for page in PAGES:
            assert client.get(page).status_code < 500, page
    work(stocked)


@pytest.mark.by_lot(4)
@pytest.mark.full
@pytest.mark.parametrize("number", range(len(NUMBERS)))
def test_odd_values_in_one_structure_stop_nobody(
    redis_server: RedisServer, redis_client: redis.Redis, request: pytest.FixtureRequest, number: int
):
    stocked: Queue = request.getfixturevalue("stocked")
    dump: dict[Any, Any] = {key: redis_client.dump(key) for key in redis_client.keys(P + "*")}
    for key in dump:
        redis_client.flushall()
        for other, value in dump.items():
            redis_client.restore(other, 0, value)
        overwrite(redis_client, key, NUMBERS[number], SCORES[number % len(SCORES)])
        with Queue("jobs", url=redis_server.url, concurrency_key=lambda _: "k") as queue:
            look(queue)
            work(queue)
    assert stocked.stats().missing is not None


@pytest.mark.parametrize("attempts", ["400000000.0.0.0", "0.0.400000000.0", "9" * 4300 + ".0.0.0", "1e400.0.0.0"])
@pytest.mark.parametrize("batched", [False, True], ids=["alone", "in-a-batch"])
@pytest.mark.usefixtures("no_hang")
def test_huge_numbers_of_attempts_and_retries_delay_no_other_message(
    redis_server: RedisServer, redis_client: redis.Redis, attempts: str, batched: bool
):
    with Queue("jobs", url=redis_server.url) as queue:
        queue.send_many([Outgoing("x", id=name) for name in ("huge", "other")])
        stored = redis_client.get(P + "msg:huge")
        assert isinstance(stored, bytes)
        redis_client.set(P + "msg:huge", stored[:13] + msgspec.msgpack.encode((1, 0, b"x", 2**64 - 1)))
        redis_client.hset(P + "attempts", "huge", attempts)
        seen: list[str] = []

        def handle(given: Any) -> None:
            seen.extend(str(each) for each in (given if batched else [given]))
            raise ValueError

        if batched:
            queue.batch_handler(handle)
        assert Consumer(queue, None if batched else handle).drain() == 2
        assert len(seen) == 2
        assert (queue.stats().retry, queue.stats().unack) == (2, 0)
        look(queue)


def test_huge_number_of_deliveries_of_a_record_delays_no_other(redis_server: RedisServer, redis_client: redis.Redis):
    with Topic("news", url=redis_server.url) as topic:
        group = topic.group("readers", start="0")
        topic.publish_many([NewRecord(number) for number in range(2)])
        for record in group.poll("gone"):
            keys = [key for key in redis_client.keys("*news*") if redis_client.type(key) == b"stream"]
            for key in keys:
                redis_client.xclaim(key, "readers", "gone", 0, [record.id], retrycount=400_000_000, idle=10**9)
        seen: list[int] = []

        def handle(record: Record) -> None:
            seen.append(record.deliveries)
            raise ValueError

        TopicConsumer(group, handle).drain()
        assert len(seen) == 2
