"""Bad input raises a named error that says the value and the remedy, and changes nothing."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue, errors
from delayq.model.envelope import FORMAT, MAX_PAYLOAD_BYTES, QUEUE_FORMAT
from tests.contract.conftest import Make

NAIVE = dt.datetime(2026, 12, 24, 18)  # noqa: DTZ001
AWARE = dt.datetime(2026, 12, 24, 18, tzinfo=dt.UTC)
CENTURIES = dt.timedelta(days=365 * 8000)

Call = Callable[[Any], Any]  # takes a queue; wrong types are part of the test

TIMES: dict[str, tuple[Call, str]] = {
    "naive-datetime": (lambda q: q.send("x", at=NAIVE), "at=2026-12-24T18:00:00 is naive: add a time zone"),
    "naive-schedule": (lambda q: q.send_schedule_msg("x", NAIVE), "is naive: add a time zone"),
    "naive-reschedule": (lambda q: q.reschedule("held", at=NAIVE), "is naive: add a time zone"),
    "datetime-text": (lambda q: q.send("x", at="2026-12-24"), "at='2026-12-24' is not a datetime"),
    "datetime-before-1970": (lambda q: q.send("x", at=AWARE.replace(year=1)), "is not between 1970 and the year 9999"),
    "negative-delay": (lambda q: q.send("x", delay=-1), "delay -1 is not 0 or more seconds"),
    "negative-timedelta": (
        lambda q: q.send("x", delay=dt.timedelta(-1)),
        r"delay datetime.timedelta\(days=-1\) is not 0",
    ),
    "nan-delay": (lambda q: q.send("x", delay=math.nan), "delay nan is not 0 or more seconds"),
    "infinite-delay": (lambda q: q.send("x", delay=math.inf), "delay inf is past the year 9999"),
    "delay-past-9999": (lambda q: q.send("x", delay=CENTURIES), r"delay .*days=2920000\) is past the year 9999"),
    "delay-text": (lambda q: q.send("x", delay="10s"), "delay '10s' is not a time: give a number of seconds"),
    "classic-negative-delay": (lambda q: q.send_delay_msg("x", -1), "delay -1 is not"),
    "delay-and-at": (lambda q: q.send("x", delay=1, at=AWARE), "were given: give one of them"),
    "expired-before-due": (
        lambda q: q.send("x", delay=5, expires_in=4),
        "expires_in=4 ends before the message is due",
    ),
    "nan-expiry": (lambda q: q.send("x", expires_in=math.nan), "expires_in nan is not 0 or more seconds"),
    "requeue-delay": (lambda q: q.dead.requeue(delay=-1), "delay -1 is not 0 or more seconds"),
    "purge-age": (lambda q: q.dead.purge(older_than=-1), "older_than -1 is not 0 or more seconds"),
    "redrive-age": (lambda q: q.dead.redrive(older_than=-1), "older_than -1 is not 0 or more seconds"),
    "redrive-youth": (lambda q: q.dead.redrive(newer_than="1h"), "newer_than '1h' is not a time"),
    "redrive-naive": (lambda q: q.dead.redrive(older_than=NAIVE), "older_than=2026-12-24T18:00:00 is naive"),
    "redrive-delay": (lambda q: q.dead.redrive(delay=-1), "delay -1 is not 0 or more seconds"),
    "edit-delay": (lambda q: q.dead.edit("held", "x", delay=-1), "delay -1 is not 0 or more seconds"),
    "upcoming-window": (lambda q: q.upcoming(-1), "window -1 is not 0 or more seconds"),
    "upcoming-bucket": (lambda q: q.upcoming(60, math.nan), "bucket nan is not 0 or more seconds"),
    "receive-lease": (lambda q: q.receive(lease=0), "lease 0 is not between 0.001 and 86400 seconds"),
    "receive-short-lease": (lambda q: q.receive(lease=0.0004), "lease 0.0004 is not between 0.001 and 86400 seconds"),
    "short-timeout": (lambda q: q.send("x", timeout=0.0009), "timeout 0.0009 is not between 0.001 and 86400 seconds"),
    "short-pause": (lambda q: q.pause(0.0004), "pause 0.0004 is not between 0.001 seconds and 366 days"),
    "receive-wait": (lambda q: q.receive(wait=-1), "wait -1 is not 0 or more seconds"),
}
NAMES: dict[str, tuple[Call, str]] = {
    "empty-id": (lambda q: q.send("x", id=""), "a message id must not be empty: give it at least one character"),
    "long-id": (lambda q: q.send("x", id="x" * 257), "is 257 bytes long: at most 256 are allowed"),
    "id-with-newline": (lambda q: q.send("x", id="a\nb"), r"contains '\\n': control characters are not allowed"),
    "id-that-is-a-number": (lambda q: q.send("x", id=42), "message id 42 is not a string"),
    "cancel-nothing": (lambda q: q.cancel(""), "a message id must not be empty"),
    "get-control": (lambda q: q.get("\x00"), r"contains '\\x00'"),
    "reschedule-number": (lambda q: q.reschedule(5, delay=1), "message id 5 is not a string"),
    "bury-nothing": (lambda q: q.dead.bury(""), "a message id must not be empty"),
    "edit-nothing": (lambda q: q.dead.edit("", "x"), "a message id must not be empty"),
    "requeue-number-within": (lambda q: q.dead.requeue(["held", 5]), "message id 5 is not a string"),
}
OTHERS: dict[str, tuple[Call, type[errors.InvalidInput], str]] = {
    "rate-without-a-period": (
        lambda q: q.configure(rate="100", concurrency=5),
        errors.InvalidInput,
        "rate '100' has no unit of time: write it as \"100/s\"",
    ),
    "concurrency-of-nothing": (
        lambda q: q.configure(concurrency=0),
        errors.InvalidInput,
        "concurrency 0 is not a whole number from 1 to 1,000,000; use None for no limit",
    ),
    "concurrency-per-key-of-text": (
        lambda q: q.configure(concurrency=5, concurrency_per_key="2"),
        errors.InvalidInput,
        "concurrency_per_key '2' is not a whole number from 1",
    ),
    "payload-too-large": (
        lambda q: q.send(b"x" * (MAX_PAYLOAD_BYTES + 1)),
        errors.PayloadTooLarge,
        r"the payload takes 1,048,577 bytes: at most 1,048,576 are allowed \(max_payload\)",
    ),
    "payload-no-json": (
        lambda q: q.send(object()),
        errors.PayloadNotSerializable,
        "a payload of type object is not bytes and cannot be written as JSON",
    ),
    "conflict": (
        lambda q: q.send("x", on_conflict="skip"),
        errors.InvalidInput,
        "'skip'; expected one of ignore, replace, error",
    ),
    "retries": (
        lambda q: q.send("x", max_retries=-1),
        errors.InvalidInput,
        "max_retries -1 is not a whole number from 0",
    ),
    "retries-half": (
        lambda q: q.send_delay_msg("x", 1, retry_count=1.5),
        errors.InvalidInput,
        "max_retries 1.5 is not",
    ),
    "headers": (lambda q: q.send("x", headers=["a"]), errors.InvalidInput, "headers .* is not a mapping: give a dict"),
    "header-value": (
        lambda q: q.send("x", headers={"a": [1]}),
        errors.InvalidInput,
        "header 'a' is of type list: use a string",
    ),
    "replicas": (
        lambda q: q.send("x", wait_replicas=-1),
        errors.InvalidInput,
        "wait_replicas -1 is not a whole number from 0 to 1,000",
    ),
    "not-outgoing": (lambda q: q.send_many([Outgoing("x"), "y"]), errors.InvalidInput, "'y' is not an Outgoing"),
    "max-messages": (lambda q: q.receive(0), errors.InvalidInput, "max_messages 0 is not a whole number from 1 to 500"),
    "max-messages-many": (lambda q: q.receive(501), errors.InvalidInput, "max_messages 501 is not"),
    "peek-state": (
        lambda q: q.peek("waiting"),
        errors.InvalidInput,
        "unknown state 'waiting'; expected one of pending, ready, unack",
    ),
    "peek-limit": (lambda q: q.peek(limit=0), errors.InvalidInput, "limit 0 is not a whole number from 1 to 1,000,000"),
    "list-limit": (lambda q: q.dead.list(-1), errors.InvalidInput, "limit -1 is not a whole .* from 1 to 1,000,000"),
    "purge-what-runs": (
        lambda q: q.purge("unack"),
        errors.InvalidInput,
        "unknown state 'unack'; expected one of pending, ready, retry, dead",
    ),
    "pause-of-nothing": (lambda q: q.pause(0), errors.InvalidTime, "pause 0 is not between 0.001 seconds and 366 days"),
    "pause-negative": (lambda q: q.pause(-1), errors.InvalidTime, "pause -1 is not 0 or more seconds"),
    "pause-nan": (lambda q: q.pause(math.nan), errors.InvalidTime, "pause nan is not 0 or more seconds"),
    "pause-for-years": (
        lambda q: q.pause(dt.timedelta(days=367)),
        errors.InvalidTime,
        "is not between 0.001 seconds and 366 days: None lasts",
    ),
    "pause-of-text": (lambda q: q.pause("10m"), errors.InvalidTime, "pause '10m' is not a time"),
    "no-time-to-reschedule": (lambda q: q.reschedule("held"), errors.InvalidInput, "needs delay= or at="),
    "requeue-number": (
        lambda q: q.dead.requeue(5),
        errors.InvalidInput,
        "ids 5 is not an id, an iterable of ids, or 'all'",
    ),
    "redrive-no-error": (lambda q: q.dead.redrive(error=""), errors.InvalidInput, "error '' is not a non-empty string"),
    "redrive-error-number": (
        lambda q: q.dead.redrive(error=5),
        errors.InvalidInput,
        "error 5 is not a non-empty string",
    ),
    "redrive-bytes": (
        lambda q: q.dead.redrive(error=re.compile(b"x")),
        errors.InvalidInput,
        "compiled pattern of str",
    ),
    "redrive-reason": (lambda q: q.dead.redrive(reason=5), errors.InvalidInput, "reason 5 is not a string"),
    "redrive-headers": (
        lambda q: q.dead.redrive(headers="a=b"),
        errors.InvalidInput,
        "headers 'a=b' is not a mapping",
    ),
    "redrive-nothing-at-all": (lambda q: q.dead.redrive(rate=0), errors.InvalidInput, "rate 0 is not a number above 0"),
    "redrive-rate-nan": (lambda q: q.dead.redrive(rate=math.nan), errors.InvalidInput, "rate nan is not a number"),
    "redrive-rate": (lambda q: q.dead.redrive(rate="5/y"), errors.InvalidInput, 'write it as 100, "100/s"'),
    "edit-as-it-is": (lambda q: q.dead.edit("held"), errors.InvalidInput, "edit needs payload=, headers= or timeout="),
    "edit-payload": (
        lambda q: q.dead.edit("held", object()),
        errors.PayloadNotSerializable,
        "a payload of type object is not bytes and cannot be written as JSON",
    ),
    "edit-headers": (
        lambda q: q.dead.edit("held", headers={"a": []}),
        errors.InvalidInput,
        "header 'a' is of type list",
    ),
    "upcoming-no-window": (lambda q: q.upcoming(0), errors.InvalidInput, "makes 0 buckets, not 1 to 500"),
    "upcoming-no-bucket": (lambda q: q.upcoming(60, 0), errors.InvalidInput, "bucket 0 is not 0.001 seconds or more"),
    "upcoming-short-bucket": (lambda q: q.upcoming(60, 0.0004), errors.InvalidInput, "bucket 0.0004 is not 0.001"),
    "upcoming-buckets": (lambda q: q.upcoming(501, 1), errors.InvalidInput, "makes 501 buckets, not 1 to 500"),
}
CALLS = {
    **{name: (call, errors.InvalidTime, why) for name, (call, why) in TIMES.items()},
    **{name: (call, errors.InvalidName, why) for name, (call, why) in NAMES.items()},
    **OTHERS,
}


def test_bad_argument_is_refused_and_changes_nothing(queue: Queue, client: redis.Redis, subtests: pytest.Subtests):
    queue.send("x", id="held", delay=60)
    for name, (call, error, why) in CALLS.items():
        with subtests.test(name):
            before = sorted(client.keys("*")), queue.get("held"), queue.stats()
            with pytest.raises(error, match=why) as caught:
                call(queue)
            assert isinstance(caught.value, ValueError)
            assert "\n" not in str(caught.value)
            assert (sorted(client.keys("*")), queue.get("held"), queue.stats()) == before


def test_bad_argument_leaves_no_trace_of_a_new_queue(make: Make, client: redis.Redis, subtests: pytest.Subtests):
    for name, (call, _, _) in CALLS.items():
        with subtests.test(name):
            client.flushall()
            with pytest.raises(errors.InvalidInput):
                call(make())
            assert client.keys("*") == []


def test_one_bad_message_keeps_a_whole_batch_from_being_sent(queue: Queue, client: redis.Redis):
    with pytest.raises(errors.InvalidTime):
        queue.send_many([*(Outgoing(n) for n in range(1000)), Outgoing("x", delay=-1)])
    assert client.keys("*") == []


QUEUES: dict[str, tuple[dict[str, Any], type[errors.InvalidInput], str]] = {
    "empty-name": ({"name": ""}, errors.InvalidName, "a queue name must not be empty: give it at least one character"),
    "blank-name": ({"name": "  "}, errors.InvalidName, "must not be empty"),
    "long-name": ({"name": "x" * 129}, errors.InvalidName, "is 129 bytes long: at most 128 are allowed"),
    "middleware": ({"middleware": 5}, errors.InvalidInput, "middleware=5 is not a Middleware: make one with"),
    "braces": ({"name": "a{b"}, errors.InvalidName, "queue name 'a{b' contains '{': use other characters than"),
    "closing-brace": ({"name": "a}b"}, errors.InvalidName, "contains '}'"),
    "shard-sign": ({"name": "a#1"}, errors.InvalidName, "contains '#'"),
    "control": ({"name": "a\x1b"}, errors.InvalidName, r"contains '\\x1b': control characters are not allowed"),
    "no-string": ({"name": 5}, errors.InvalidName, "queue name 5 is not a string"),
    "prefix": ({"prefix": ""}, errors.InvalidName, "a prefix must not be empty"),
    "lease": ({"lease": 0}, errors.InvalidTime, "lease 0 is not between 0.001 and 86400 seconds"),
    "lease-nan": ({"lease": math.nan}, errors.InvalidTime, "lease nan is not"),
    "retries": ({"max_retries": -1}, errors.InvalidInput, "max_retries -1 is not a whole number from 0 to 1,000,000"),
    "backoff": ({"backoff": 5}, errors.InvalidInput, "backoff 5 is not callable: use one from"),
    "backoff without arguments": (
        {"backoff": lambda: 5},
        errors.InvalidInput,
        "cannot be called with only the attempt",
    ),
    "shards-none": ({"shards": 0}, errors.InvalidInput, "shards 0 is not a number from 1 to 1,024"),
    "shards-many": ({"shards": 1025}, errors.InvalidInput, "shards 1025 is not"),
    "shards-true": ({"shards": True}, errors.InvalidInput, "shards True is not"),
    "max-payload": ({"max_payload": 0}, errors.InvalidInput, "max_payload 0 is not a whole number of bytes, 1 or more"),
    "retention": ({"dead_retention": -1}, errors.InvalidTime, "dead_retention -1 is not 0 or more seconds"),
    "url-and-client": ({"url": "redis://x"}, errors.InvalidInput, "url= and redis= were given: give one of them"),
}


def test_bad_queue_option_is_refused_by_the_constructor(make: Make, client: redis.Redis, subtests: pytest.Subtests):
    for name, (options, error, why) in QUEUES.items():
        with subtests.test(name):
            with pytest.raises(error, match=why):
                make(**options)
            assert client.keys("*") == []


MESSAGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "nack-negative": (lambda m: m.nack(delay=-1), "delay -1 is not 0 or more seconds"),
    "nack-past-9999": (lambda m: m.nack(delay=CENTURIES), "is past the year 9999"),
    "extend-nothing": (lambda m: m.extend(0), "0 is not between 0.001 and 86400 seconds"),
    "extend-days": (lambda m: m.extend(dt.timedelta(days=2)), "is not between 0.001 and 86400 seconds"),
    "extend-nan": (lambda m: m.extend(math.nan), "nan is not 0 or more seconds"),
}


def test_bad_argument_to_a_message_method_leaves_the_message_held(queue: Queue, subtests: pytest.Subtests):
    for name, (call, why) in MESSAGES.items():
        queue.send("x", id="a")
        (message,) = queue.receive()
        with subtests.test(name):
            before = queue.get("a"), queue.stats()
            with pytest.raises(errors.InvalidTime, match=why):
                call(message)
            assert (queue.get("a"), queue.stats()) == before
        message.ack()


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("waits", [-1, math.nan, "soon", None])
def test_message_is_retried_even_if_the_backoff_returns_no_valid_delay(make: Make, waits: Any):
    queue = make(backoff=lambda _: waits)
    queue.send("x", id="a")
    queue.receive()[0].nack()
    info = queue.get("a")
    assert info is not None
    assert info.state == "retry"


EVERYTHING: dict[str, Call] = {
    "send": lambda q: q.send("x"),
    "receive": lambda q: q.receive(),
    "stats": lambda q: q.stats(),
    "get": lambda q: q.get("held"),
    "peek": lambda q: q.peek(),
    "cancel": lambda q: q.cancel("held"),
    "reschedule": lambda q: q.reschedule("held", delay=1),
    "pause": lambda q: q.pause(),
    "resume": lambda q: q.resume(),
    "purge": lambda q: q.purge(),
    "requeue": lambda q: q.dead.requeue(),
    "redrive": lambda q: q.dead.redrive(),
    "edit": lambda q: q.dead.edit("held", "x"),
    "bury": lambda q: q.dead.bury("held"),
    "upcoming": lambda q: q.upcoming(),
    "collect": lambda q: q.collect_garbage(),
}


def test_queue_of_a_newer_format_is_refused_by_every_call(make: Make, client: redis.Redis, subtests: pytest.Subtests):
    make().send("x", id="held", delay=60)
    home = make()._context.shards[0].keys
    for name, call in EVERYTHING.items():
        with subtests.test(name):
            client.hset(home.meta, "format", QUEUE_FORMAT + 1)
            with pytest.raises(errors.FormatTooNew, match=rf"format.* {QUEUE_FORMAT + 1}\b.*{QUEUE_FORMAT}\b"):
                call(make())
            client.hset(home.meta, "format", FORMAT)
            assert make().stats().pending == 1


def test_wrong_number_of_shards_is_refused_by_every_call(make: Make, subtests: pytest.Subtests):
    make("spread", shards=2).send("x", id="held", delay=60)
    for name, call in EVERYTHING.items():
        with subtests.test(name):
            with pytest.raises(errors.ShardsMismatch, match=r"\b2\b.*shards") as caught:
                call(make("spread", shards=4))
            assert "4" in str(caught.value)
            assert isinstance(caught.value, errors.QueueMismatch)
            assert make("spread", shards=2).stats().pending == 1


def test_client_with_the_wrong_number_of_shards_is_refused_once_the_queue_exists(make: Make):
    early = make("spread", shards=1)
    assert early.receive() == []
    assert early.stats().inside == 0
    make("spread", shards=3).send("x")
    with pytest.raises(errors.ShardsMismatch):
        early.receive()


def test_client_opened_before_the_queue_existed_serves_all_its_shards(make: Make):
    early = make("spread", shards=None)
    assert early.receive() == []
    make("spread", shards=3).send_many([Outgoing(n) for n in range(30)])
    assert len(early.receive(30)) == 30


@pytest.mark.same_on_all_clients
@pytest.mark.same_on_all_servers
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("countdown", "'countdown': did you mean delay=?"),
        ("ttl", "'ttl': did you mean expires_in=?"),
        ("max_retry", "'max_retry': did you mean max_retries=?"),
        ("colour", "'colour'"),
    ],
)
def test_unknown_send_option_is_named_with_a_suggestion(queue: Queue, option: str, expected: str):
    unknown: Any = {option: 10}
    with pytest.raises(TypeError, match=re.escape(f"unexpected keyword argument {expected}") + "$"):
        queue.send("x", **unknown)
    assert queue.stats().sent == 0
