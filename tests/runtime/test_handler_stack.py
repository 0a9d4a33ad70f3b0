"""Typed handlers and middleware in a consumer, on a real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import redis

from delayq import Consumer, Message, Queue, Reject, RetryAfter, backoff


class Order(msgspec.Struct):
    id: int
    lines: list[str] = []


@pytest.fixture
def queue(any_client: redis.Redis) -> Iterator[Queue]:
    with Queue("jobs", redis=any_client, backoff=backoff.fixed(30)) as queue:
        yield queue


@pytest.mark.parametrize("registered", [True, False], ids=["registered", "given to the consumer"])
def test_typed_handler_gets_orders_and_mismatches_become_dead_letters(queue: Queue, registered: bool) -> None:
    orders: list[Order] = []

    def deliver(order: Order) -> None:
        orders.append(order)

    if registered:
        queue.handler(deliver)
    queue.send(Order(1, ["a"]))
    wrong = queue.send({"id": "two"}).id
    raw = queue.send(b'{"id": 3}').id
    assert Consumer(queue, None if registered else deliver).drain() == 3
    assert orders == [Order(1, ["a"])]
    letters = {letter.id: (letter.reason, letter.error, letter.attempts) for letter in queue.dead.list()}
    assert letters == {
        wrong: (
            "payload-mismatch",
            "PayloadMismatch: the payload is not a valid Order: Expected `int`, got `str` - at `$.id`",
            1,
        ),
        raw: (
            "payload-mismatch",
            "PayloadMismatch: the payload is not a valid Order: Expected `object`, got `bytes`",
            1,
        ),
    }
    assert queue.stats().missing == 0


def test_typed_message_is_settled_like_any_other(queue: Queue) -> None:
    @queue.handler
    def deliver(message: Message[Order]) -> None:
        assert message.payload.lines == ["a"]
        message.reject(f"order {message.payload.id} is refused")

    queue.send(Order(7, ["a"]))
    assert Consumer(queue).drain() == 1
    assert [letter.reason for letter in queue.dead.list()] == ["order 7 is refused"]


def outcome(queue: Queue, handler: Callable[[Message], Any]) -> tuple[Any, ...] | None:
    """What happens to a message: None if it is acked, otherwise its state, reason and error."""
    sent = queue.send("x")
    assert Consumer(queue, handler).drain() == 1
    info = queue.get(sent.id)
    return None if info is None else (info.state, info.reason, info.error)


def raising(error: BaseException) -> Callable[..., Any]:
    def raiser(*_: Any) -> None:
        raise error

    return raiser


def test_error_in_before_fails_the_delivery_like_an_error_in_the_handler(queue: Queue) -> None:
    queue.middleware.before_delivery(raising(RetryAfter(60, "closed")))
    assert outcome(queue, raising(AssertionError("it ran"))) == ("retry", None, "RetryAfter: closed")


def test_reject_in_middleware_makes_a_dead_letter(queue: Queue) -> None:
    queue.middleware.before_delivery(raising(Reject("no tenant")))
    assert outcome(queue, raising(AssertionError("it ran"))) == ("dead", "no tenant", "Reject: no tenant")


def test_error_in_after_leaves_the_message_acked(queue: Queue) -> None:
    queue.middleware.after_delivery(raising(ValueError("boom")))
    assert outcome(queue, lambda _: None) is None
    assert queue.stats().acked == 1


def test_error_after_the_yield_fails_the_delivery(queue: Queue) -> None:
    @queue.middleware.around_delivery
    def commit(_: Message) -> Iterator[None]:
        yield
        raise ConnectionError("not committed")

    assert outcome(queue, lambda _: None) == ("retry", None, "ConnectionError: not committed")


def test_middleware_does_not_change_a_returned_false(queue: Queue) -> None:
    queue.middleware.after_delivery(lambda _message, _error: None)
    assert outcome(queue, lambda _: False) == ("retry", None, "the handler returned False")


def test_middleware_sees_a_mismatch_as_an_error_and_the_payload_as_its_type(queue: Queue) -> None:
    seen: list[Any] = []

    def deliver(order: Order) -> None:
        pass

    queue.middleware.after_delivery(lambda message, error: seen.append(type(error or message.payload).__name__))
    queue.send({"id": 1})
    queue.send({"id": None})
    Consumer(queue, deliver, concurrency=1).drain()
    assert sorted(seen) == ["Order", "PayloadMismatch"]
