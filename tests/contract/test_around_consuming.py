"""What surrounds a consumer's handler, on every kind of client and in both APIs: types, middleware, schedules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from delayq import Ack, Message, Outgoing, Queue
from delayq.errors import HandlerMissing, InvalidInput, ServerOutOfMemory
from tests.contract.conftest import Calls, Drain, Make, Now, intercept, registered


@dataclass
class Order:
    id: int


def test_typed_handler_gets_its_payload_and_a_mismatch_is_dead_lettered(queue: Queue, drain: Drain):
    seen: list[Any] = []

    def handle(order: Order) -> None:
        seen.append(order)

    registered(queue, queue.handler, handle)
    queue.send({"id": 1})
    queue.send({"id": "x"})
    assert drain(queue, None, concurrency=1) == 2
    assert seen == [Order(1)]
    assert [letter.reason for letter in queue.dead.list()] == ["payload-mismatch"]


def test_typed_message_has_its_payload(queue: Queue, drain: Drain):
    seen: list[Any] = []

    def handle(message: Message[Order]) -> Ack:
        seen.append(message.payload)
        return Ack(then=[Outgoing({"id": 2})] if message.payload.id == 1 else [])

    registered(queue, queue.handler, handle)
    queue.send({"id": 1})
    assert drain(queue, None, concurrency=1) == 2
    assert seen == [Order(1), Order(2)]


def test_middleware_runs_around_each_delivery(queue: Queue, drain: Drain):
    seen: list[Any] = []
    queue.middleware.before_delivery(lambda message: seen.append(("before", message.id)))
    queue.middleware.after_delivery(lambda message, error: seen.append((type(error).__name__, message.id)))

    def handle(message: Message) -> Any:
        seen.append(("handled", message.id))
        if message.id == "b":
            raise ValueError("no")
        return message.id != "c"

    for id, outcome in (("a", "NoneType"), ("b", "ValueError"), ("c", "ReturnedFalse")):
        queue.send("x", id=id)
        assert drain(queue, handle, concurrency=1) == 1
        assert seen == [("before", id), ("handled", id), (outcome, id)]
        seen.clear()
    assert (queue.stats().acked, queue.stats().retry) == (1, 2)


def test_cron_function_handles_its_slots_and_the_handler_everything_else(queue: Queue, now: Now, drain: Drain):
    ticks: list[Any] = []
    others: list[Any] = []

    def tick(message: Message) -> None:
        ticks.append((message.payload, message.schedule))

    registered(queue, queue.cron("*/5 * * * *", payload={"n": 1}), tick)
    queue.send("other")
    assert drain(queue, lambda message: others.append(message.payload)) == 1
    (schedule,) = queue.schedules.list()
    assert (schedule.name, schedule.own, schedule.payload) == ("tick", True, {"n": 1})
    now.later(120)
    assert drain(queue, lambda message: others.append(message.payload)) == 1
    assert (ticks, others) == ([({"n": 1}, "tick")], ["other"])


def test_schedule_refused_for_lack_of_memory_is_stored_later(
    queue: Queue, drain: Drain, monkeypatch: pytest.MonkeyPatch
):
    full = [True]

    def refuse(calls: Calls) -> list[Any] | None:
        if any(call.script is not None and call.script.name == "enqueue_occurrence" for call in calls) and full:
            full.pop()
            return [ServerOutOfMemory("no room")]
        return None

    registered(queue, queue.cron("*/5 * * * *", name="tick"), lambda _: None)
    intercept(queue, monkeypatch, before=refuse)
    drain(queue, None)
    assert full == []
    assert [schedule.name for schedule in queue.schedules.list()] == ["tick"]


def test_middleware_and_types_apply_to_cron_functions_too(queue: Queue, now: Now, drain: Drain):
    seen: list[Any] = []

    def tick(order: Order) -> None:
        seen.append(order)

    queue.middleware.after_delivery(lambda _, error: seen.append(error))
    registered(queue, queue.cron("*/5 * * * *", payload={"id": 7}), tick)
    assert drain(queue, None) == 0
    now.later(120)
    assert drain(queue, None) == 1
    assert seen == [Order(7), None]


def test_occurrence_without_a_cron_function_here_fails_and_is_retried(queue: Queue, make: Make, now: Now, drain: Drain):
    registered(queue, queue.cron("*/5 * * * *", name="elsewhere"), lambda _: None)
    drain(queue, None)
    now.later(120)
    assert drain(make(queue.name), lambda _: None) == 1
    (info,) = queue.peek("retry")
    assert "schedule 'elsewhere' has no handler here" in str(info.error)


def test_queue_with_only_cron_functions_fails_other_messages(queue: Queue, drain: Drain):
    registered(queue, queue.cron("*/5 * * * *", name="tick"), lambda _: None)
    seen: list[Any] = []
    queue.middleware.after_delivery(lambda _, error: seen.append(type(error)))
    queue.send("x")
    assert drain(queue, None) == 1
    assert seen == [HandlerMissing]
    (info,) = queue.peek("retry")
    assert "has no handler here" in str(info.error)


def test_schedule_name_can_have_only_one_function(queue: Queue):
    registered(queue, queue.cron("@daily", name="tick"), lambda _: None)
    with pytest.raises(InvalidInput, match="already has a handler"):
        registered(queue, queue.cron("@hourly", name="tick"), lambda _: None)
    with pytest.raises(InvalidInput, match="61"):
        queue.cron("61 * * * *")


class Custom:
    """A type that no payload can have."""


def test_type_that_no_payload_can_have_is_refused_at_registration(queue: Queue):
    def handle(payload: Custom) -> None:
        raise AssertionError(payload)

    with pytest.raises(InvalidInput, match="handle takes Custom"):
        registered(queue, queue.handler, handle)
    with pytest.raises(InvalidInput, match="handle takes Custom"):
        registered(queue, queue.cron("@daily"), handle)
    assert not queue.handlers


class Handled(list[Any]):
    """A handler that is falsy, because it is an empty list."""

    def __call__(self, message: Message) -> None:
        self.append(message.payload)


def test_falsy_handler_is_still_called(queue: Queue, drain: Drain):
    handled = Handled()
    queue.send("x")
    assert drain(queue, handled) == 1
    assert handled == ["x"]
