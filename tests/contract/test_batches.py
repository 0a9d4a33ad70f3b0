"""Batch handlers, on every kind of client and in both APIs: what they get, and what their return value does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from delayq import Ack, Message, Outgoing, Queue, Reject, RetryAfter
from delayq.errors import InvalidInput, ReturnedFalse
from delayq.model.units import from_ms
from tests.contract.conftest import Drain, Make, Now, registered


@dataclass
class Order:
    id: int


def ids(messages: list[Any]) -> list[str]:
    return [message.id for message in messages]


def state(queue: Queue, id: str) -> str:
    info = queue.get(id)
    return info.state if info else "gone"


def send(queue: Queue, names: str) -> None:
    """Send a message for each letter, which is its id and its payload."""
    queue.send_many(Outgoing(name, id=name) for name in names)


def test_all_batches_but_the_last_are_full_and_ordered_by_due_time(make: Make, drain: Drain, now: Now):
    queue = make(shards=1)
    seen: list[list[str]] = []
    registered(queue, queue.batch_handler(max_messages=4, max_wait=3600), lambda messages: seen.append(ids(messages)))
    for name in "jihgfedcba":
        queue.send(name, id=name)
        now.later(0.001)
    assert drain(queue, None, concurrency=1) == 10
    assert seen == [list("jihg"), list("fedc"), list("ba")]
    stats = queue.stats()
    assert (stats.delivered, stats.acked, stats.inside, stats.missing) == (10, 10, 0, 0)


def test_batch_can_be_larger_than_one_claim(queue: Queue, drain: Drain):
    sizes: list[int] = []
    registered(queue, queue.batch_handler(max_messages=1200, max_wait=3600), lambda batch: sizes.append(len(batch)))
    queue.send_many(Outgoing(n) for n in range(1300))
    assert drain(queue, None, concurrency=1) == 1300
    assert sizes == [1200, 100]


def test_batches_are_handled_concurrently(queue: Queue, drain: Drain):
    sizes: list[int] = []
    registered(queue, queue.batch_handler(max_messages=10, max_wait=3600), lambda batch: sizes.append(len(batch)))
    queue.send_many(Outgoing(n) for n in range(95))
    assert drain(queue, None, concurrency=4) == 95
    assert sorted(sizes) == [5, *[10] * 9]


def test_plain_function_handles_batches_in_both_apis(queue: Queue, drain: Drain):
    seen: list[str] = []
    queue.batch_handler(max_messages=2)(lambda messages: seen.extend(ids(messages)))
    send(queue, "abc")
    assert drain(queue, None) == 3
    assert sorted(seen) == ["a", "b", "c"]
    assert queue.stats().acked == 3


def test_returned_mapping_decides_the_outcome_of_each_message(queue: Queue, drain: Drain, now: Now):
    verdicts = {
        "a": None,
        "b": True,
        "c": False,
        "d": ValueError("no row"),
        "e": Reject("no such user"),
        "f": RetryAfter(60),
        "g": Ack(),
    }
    registered(queue, queue.batch_handler(), lambda messages: {m.id: verdicts[m.id] for m in messages if m.id != "h"})
    send(queue, "abcdefgh")
    assert drain(queue, None, concurrency=1) == 8
    assert {name: state(queue, name) for name in "abcdefgh"} == {
        **dict.fromkeys("abgh", "gone"),
        **dict.fromkeys("cdf", "retry"),
        "e": "dead",
    }
    errors = {name: getattr(queue.get(name), "error", None) for name in "cdef"}
    assert errors == {
        "c": "the handler returned False",
        "d": "ValueError: no row",
        "e": "Reject: no such user",
        "f": "RetryAfter: retry after 60",
    }
    later = queue.get("f")
    assert later is not None
    assert later.due_at == from_ms(now.ms + 60_000)


def test_mapping_may_use_messages_as_keys(queue: Queue, drain: Drain):
    registered(queue, queue.batch_handler(), lambda messages: {m: m.payload == "a" for m in messages})
    send(queue, "ab")
    assert drain(queue, None, concurrency=1) == 2
    assert (state(queue, "a"), state(queue, "b")) == ("gone", "retry")


@pytest.mark.parametrize(
    ("error", "text"),
    [(ValueError("no table"), "ValueError: no table"), (SystemExit(3), "SystemExit: 3")],
    ids=["error", "exit"],
)
def test_handler_error_fails_every_message_by_its_own_retries(
    queue: Queue, drain: Drain, error: BaseException, text: str
):
    def handle(_: Any) -> None:
        raise error

    registered(queue, queue.batch_handler(), handle)
    queue.send("x", id="a")
    queue.send("x", id="last", max_retries=0)
    assert drain(queue, None, concurrency=1) == 2
    assert (state(queue, "a"), state(queue, "last")) == ("retry", "dead")
    assert [getattr(queue.get(name), "error", None) for name in ("a", "last")] == [text, text]


def test_raising_reject_dead_letters_the_whole_batch(queue: Queue, drain: Drain):
    def handle(_: Any) -> None:
        raise Reject("closed")

    registered(queue, queue.batch_handler(), handle)
    send(queue, "ab")
    assert drain(queue, None) == 2
    assert [letter.reason for letter in queue.dead.list()] == ["closed", "closed"]


def test_returning_false_fails_the_whole_batch(queue: Queue, drain: Drain):
    registered(queue, queue.batch_handler(), lambda _: False)
    send(queue, "ab")
    assert drain(queue, None) == 2
    assert (queue.stats().retry, queue.stats().acked) == (2, 0)


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        ({"zzz": False}, "'zzz', which was not in its batch"),
        ({"a": "fine"}, "'fine' for 'a': return"),
        ({"a": Reject}, "for 'a': return"),
        (["a"], "returned a value of type list"),
        (Ack(), "returned a value of type Ack"),
    ],
)
def test_invalid_return_value_fails_the_whole_batch_and_is_named(
    queue: Queue, drain: Drain, returned: object, named: str
):
    registered(queue, queue.batch_handler(), lambda _: returned)
    send(queue, "ab")
    assert drain(queue, None, concurrency=1) == 2
    for name in "ab":
        info = queue.get(name)
        assert info is not None
        assert info.state == "retry"
        assert info.error is not None
        assert named in info.error


def test_follow_ups_of_a_message_in_a_batch_are_sent_with_its_ack(queue: Queue, drain: Drain):
    def handle(messages: list[Message]) -> dict[str, Any]:
        firsts = [message for message in messages if message.payload < 3]
        return {message.id: Ack(then=[Outgoing(message.payload + 1)]) for message in firsts}

    registered(queue, queue.batch_handler(max_messages=10), handle)
    queue.send_many([Outgoing(1), Outgoing(2), Outgoing(3)])
    assert drain(queue, None, concurrency=1) == 6  # 1 2 3, 2 3, 3
    assert (queue.stats().sent, queue.stats().acked, queue.stats().missing) == (6, 6, 0)


def test_bad_follow_up_fails_only_its_own_message(queue: Queue, drain: Drain):
    def broken() -> Iterator[Outgoing]:
        yield Outgoing("next")
        raise LookupError("no address")

    registered(queue, queue.batch_handler(), lambda _: {"a": Ack(then=broken())})
    send(queue, "ab")
    assert drain(queue, None, concurrency=1) == 2
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.error, state(queue, "b")) == ("retry", "LookupError: no address", "gone")


def test_expired_message_is_left_out_of_batches(queue: Queue, drain: Drain, now: Now):
    seen: list[str] = []
    registered(queue, queue.batch_handler(), lambda messages: seen.extend(ids(messages)))
    queue.send("x", id="late", expires_in=10)
    queue.send("x", id="fine")
    now.later(10)
    assert drain(queue, None) == 1
    assert (seen, queue.stats().expired) == (["fine"], 1)


def test_typed_batch_gets_payloads_and_only_a_mismatch_is_dead_lettered(queue: Queue, drain: Drain):
    seen: list[Order] = []

    def handle(orders: list[Order]) -> None:
        seen.extend(orders)

    registered(queue, queue.batch_handler(), handle)
    queue.send_many([Outgoing({"id": 1}, id="a"), Outgoing({"id": "x"}, id="b"), Outgoing({"id": 3}, id="c")])
    assert drain(queue, None, concurrency=1) == 3
    assert sorted(order.id for order in seen) == [1, 3]
    assert [(letter.id, letter.reason) for letter in queue.dead.list()] == [("b", "payload-mismatch")]


def test_typed_messages_in_a_batch_have_typed_payloads(queue: Queue, drain: Drain):
    def handle(messages: list[Message[Order]]) -> dict[str, bool]:
        return {message.id: message.payload.id > 1 for message in messages}

    registered(queue, queue.batch_handler(), handle)
    queue.send_many([Outgoing({"id": 1}, id="a"), Outgoing({"id": 2}, id="b")])
    assert drain(queue, None, concurrency=1) == 2
    assert (state(queue, "a"), state(queue, "b")) == ("retry", "gone")


def test_handler_is_not_called_if_no_payload_in_the_batch_fits_its_type(queue: Queue, drain: Drain):
    def handle(orders: list[Order]) -> None:
        raise AssertionError(orders)

    registered(queue, queue.batch_handler(), handle)
    send(queue, "ab")
    assert drain(queue, None) == 2
    assert [letter.reason for letter in queue.dead.list()] == ["payload-mismatch"] * 2


def test_suspect_runs_in_a_batch_of_its_own(make: Make, client: Any, drain: Drain, now: Now):
    queue = make(lease=1, shards=1, max_retries=5)
    queue.send("poison", id="a")
    for _ in range(2):
        assert len(queue.receive(1)) == 1
        now.later(1)
    queue.send_many(Outgoing("plain") for _ in range(20))
    with_it: list[tuple[int, int]] = []

    def handle(messages: list[Any]) -> None:
        if any(message.payload == "poison" for message in messages):
            with_it.append((len(messages), client.zcard(queue._context.shards[0].keys.unack)))

    registered(queue, queue.batch_handler(max_messages=10, max_wait=3600), handle)
    assert drain(queue, None, concurrency=4) == 21
    assert with_it == [(1, 1)]


def test_middleware_runs_around_each_message_of_a_batch_and_sees_its_outcome(queue: Queue, drain: Drain):
    seen: list[Any] = []

    @queue.middleware.before_delivery
    def refuse(message: Any) -> None:
        if message.id == "d":
            raise Reject("closed")

    @queue.middleware.around_delivery
    @contextmanager
    def forgive(message: Any) -> Iterator[None]:
        try:
            yield
        except LookupError:
            if message.id != "e":
                raise

    queue.middleware.before_delivery(lambda message: seen.append(("before", message.id)))
    queue.middleware.after_delivery(lambda message, error: seen.append((message.id, type(error))))

    def handle(messages: list[Any]) -> dict[str, Any]:
        seen.append(ids(messages))
        return {"b": LookupError("no row"), "c": False, "e": LookupError("no row, and it does not matter")}

    registered(queue, queue.batch_handler(), handle)
    send(queue, "abcde")
    assert drain(queue, None, concurrency=1) == 5
    given = next(each for each in seen if isinstance(each, list))
    assert sorted(given) == list("abce")
    position = seen.index(given)
    assert sorted(seen[:position]) == [("before", name) for name in "abce"]
    assert dict(seen[position + 1 :]) == {"a": type(None), "b": LookupError, "c": ReturnedFalse, "e": LookupError}
    states = {name: state(queue, name) for name in "abcde"}
    assert states == {"a": "gone", "b": "retry", "c": "retry", "d": "dead", "e": "gone"}


def test_message_is_acked_if_middleware_swallows_its_error(queue: Queue, drain: Drain):
    seen: list[str] = []

    @queue.middleware.around_delivery
    @contextmanager
    def swallow(_: Any) -> Iterator[None]:
        with suppress(LookupError):
            yield

    @queue.middleware.before_delivery
    def fail(message: Any) -> None:
        if message.id == "a":
            raise LookupError

    registered(queue, queue.batch_handler(), lambda messages: seen.extend(ids(messages)))
    send(queue, "ab")
    assert drain(queue, None) == 2
    assert (seen, queue.stats().acked) == (["b"], 2)


def test_batch_error_passes_through_the_middleware_of_each_message(queue: Queue, drain: Drain):
    seen: list[tuple[str, str]] = []
    queue.middleware.after_delivery(lambda message, error: seen.append((message.id, str(error))))

    def handle(_: Any) -> None:
        raise ValueError("no table")

    registered(queue, queue.batch_handler(), handle)
    send(queue, "abc")
    assert drain(queue, None, concurrency=1) == 3
    assert sorted(seen) == [("a", "no table"), ("b", "no table"), ("c", "no table")]


def test_cron_functions_are_called_with_single_messages(queue: Queue, now: Now, drain: Drain):
    ticks: list[Any] = []
    batches: list[list[Any]] = []
    registered(queue, queue.cron("*/5 * * * *", payload=7), lambda message: ticks.append(message.payload))
    registered(queue, queue.batch_handler(), lambda messages: batches.append(sorted(each.payload for each in messages)))
    assert drain(queue, None) == 0
    send(queue, "ab")
    now.later(120)
    assert drain(queue, None, concurrency=1) == 3
    assert (ticks, batches) == ([7], [["a", "b"]])


def test_occurrences_without_a_cron_function_are_handled_in_batches(queue: Queue, now: Now, drain: Drain):
    seen: list[Any] = []
    registered(queue, queue.batch_handler(), lambda messages: seen.extend(each.payload for each in messages))
    queue.schedules.add("tick", "*/5 * * * *", payload=7)
    now.later(120)
    assert drain(queue, None) == 1
    assert seen == [7]


@pytest.mark.same_on_all_clients
def test_queue_can_have_only_one_handler(queue: Queue, make: Make):
    def one(_: Any) -> None:
        raise AssertionError

    other = make("others")
    registered(other, other.handler, one)
    with pytest.raises(InvalidInput, match=r"queue others already has a function of @queue\.handler"):
        registered(other, other.batch_handler(), one)
    registered(queue, queue.batch_handler(), one)
    with pytest.raises(InvalidInput, match=r"queue jobs already has a function of @queue\.batch_handler"):
        registered(queue, queue.handler, one)


def test_handler_decorator_works_with_parentheses(queue: Queue, drain: Drain):
    seen: list[Any] = []
    registered(queue, queue.handler(), lambda message: seen.append(message.payload))
    send(queue, "a")
    assert drain(queue, None) == 1
    assert len(seen) == 1


def test_handler_given_to_the_consumer_overrides_a_batch_handler(queue: Queue, drain: Drain):
    seen: list[str] = []

    def never(_: Any) -> None:
        raise AssertionError

    registered(queue, queue.batch_handler(), never)
    send(queue, "ab")
    assert drain(queue, lambda message: seen.append(message.id)) == 2
    assert sorted(seen) == ["a", "b"]


class Custom:
    """A type that no payload can have."""


def takes_one(message: Message) -> None:
    raise AssertionError(message)


def takes_custom(payloads: list[Custom]) -> None:
    raise AssertionError(payloads)


UNBATCHED: list[tuple[dict[str, Any], Any, str]] = [
    ({"max_messages": 0}, print, "max_messages 0"),
    ({"max_messages": 10_001}, print, "max_messages 10001"),
    ({"max_messages": True}, print, "max_messages True"),
    ({"max_messages": 1.5}, print, "max_messages 1.5"),
    ({"max_wait": -1}, print, "max_wait -1"),
    ({"max_wait": 86_401}, print, "max_wait 86401"),
    ({"max_wait": "soon"}, print, "max_wait 'soon'"),
    ({}, None, "not callable"),
    ({}, takes_one, r"takes_one takes .*Message.*list\[Message\]"),
    ({}, takes_custom, "takes_custom takes Custom"),
]


def test_invalid_batch_handler_is_refused(queue: Queue, subtests: pytest.Subtests):
    for options, function, match in UNBATCHED:
        with subtests.test(match):
            with pytest.raises(InvalidInput, match=match):
                queue.batch_handler(**options)(function)
            assert queue.handlers.main is None


def test_batch_handler_without_parentheses_has_the_defaults(queue: Queue, drain: Drain):
    registered(queue, queue.batch_handler, lambda _messages: None)
    queue.send("x")
    assert drain(queue, None) == 1
    handler: Any = queue.handlers.main
    assert (handler.max_messages, handler.max_wait) == (500, 0.1)
