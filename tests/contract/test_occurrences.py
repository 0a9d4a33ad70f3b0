"""Occurrences of schedules: what a handler sees of them, and which messages are none."""

from __future__ import annotations

import datetime as dt
import inspect
from typing import Any

import pytest
import redis

from delayq import Ack, Consumer, Message, NewRecord, Outgoing, Queue, Topic
from delayq.dead_letters import DeadLetters
from delayq.errors import InvalidInput
from delayq.model.envelope import encode_envelope
from delayq.model.occurrence import occurrence_id
from delayq.model.units import timestamp_ms
from delayq.operations import schedule_chain
from delayq.schedules import Schedules
from tests.contract.conftest import Drain, Now, Take, examine
from tests.contract.test_schedules import at, taken
from tests.harness.foreign_headers import NAME, PLAN, PLANS, SLOT, plan, write

RESERVED = [NAME, SLOT, PLAN, "delayq-task", "delayq-", "DelayQ-Slot", " delayq-plan ", "\u2003DELAYQ-x"]
MINUTE = 60.0
YEAR = 366 * 86_400.0


# -- what a sender may give --------------------------------------------------------------------------------------------


def ways(queue: Any) -> dict[str, Any]:
    """Each call that takes headers."""
    return {
        "send": lambda headers: queue.send("x", headers=headers),
        "send_delay_msg": lambda headers: queue.send_delay_msg("x", 5, headers=headers),
        "send_schedule_msg": lambda headers: queue.send_schedule_msg("x", at("22:20"), headers=headers),
        "replace": lambda headers: queue.send("x", id="dead", on_conflict="replace", headers=headers),
        "send_many": lambda headers: queue.send_many([Outgoing("x"), Outgoing("x", headers=headers)]),
        "schedule": lambda headers: queue.schedules.add("tick", "* * * * *", headers=headers),
        "cron": lambda headers: queue.cron("* * * * *", name="tick", headers=headers)(lambda _: None),
        "edit": lambda headers: queue.dead.edit("dead", headers=headers),
        "redrive": lambda headers: queue.dead.redrive(headers=headers),
    }


def takes_headers(subject: type) -> set[str]:
    """Return the public calls of a class that take headers; its name if it is made with them."""
    functions = [function for _, function in inspect.getmembers(subject, inspect.isfunction)]
    names = {each.__qualname__ for each in functions if "headers" in inspect.signature(each).parameters}
    return {name for name in names if "._" not in name} | (
        {subject.__name__} if "headers" in getattr(subject, "__struct_fields__", ()) else set()
    )


def test_calls_that_take_headers_are_known():
    subjects = [Queue, DeadLetters, Schedules, Topic, Outgoing, NewRecord, Message, Consumer]
    assert set().union(*map(takes_headers, subjects)) == {
        *("Queue.send", "Queue.cron", "DeadLetters.redrive", "DeadLetters.edit", "Schedules.add", "Topic.publish"),
        *("Outgoing", "NewRecord"),
    }


@pytest.mark.parametrize("way", ways(None))
def test_headers_of_delayq_are_refused_and_change_nothing(queue: Queue, way: str):
    queue.send("x", id="dead")
    queue.receive()[0].reject("broken")
    for name in RESERVED:
        with pytest.raises(InvalidInput) as refused:
            ways(queue)[way]({"tenant": "acme", name: 1})
        assert repr(name) in str(refused.value)
        assert "rename it or leave it out" in str(refused.value)
    stats = queue.stats()
    assert (stats.sent, stats.dead, stats.inside, queue.schedules.list()) == (1, 1, 1, [])


def test_ack_with_headers_of_delayq_in_a_message_to_follow_changes_nothing(queue: Queue, take: Take):
    queue.send("x", id="a")
    message = take()
    for name in RESERVED:
        with pytest.raises(InvalidInput, match="rename it or leave it out"):
            message.ack(then=[Outgoing("y"), Outgoing("x", headers={name: 1})])
    assert (queue.stats().sent, queue.stats().acked, queue.stats().unack) == (1, 0, 1)
    message.ack()


def test_headers_that_only_resemble_those_of_delayq_are_allowed(queue: Queue):
    headers = {"delayq": 1, "delayq_slot": 2, "x-delayq-slot": 3, "delay-q": 4}
    queue.send("x", headers=headers)
    assert queue.receive()[0].headers == headers


def test_middleware_cannot_add_headers_of_delayq(queue: Queue):
    @queue.middleware.before_send
    def add(outgoing: Outgoing) -> Outgoing:
        return Outgoing(outgoing.payload, headers={SLOT: 1})

    with pytest.raises(InvalidInput, match="delayq-slot"):
        queue.send("x")


# -- what a handler sees -----------------------------------------------------------------------------------------------


def test_handler_sees_the_schedule_and_the_slot_but_no_headers_of_delayq(queue: Queue, now: Now, drain: Drain):
    seen: list[Any] = []
    queue.schedules.add("tick", "*/5 * * * *", headers={"tenant": "acme"})
    queue.send("plain", headers={"a": 1})
    now.later(2 * MINUTE)
    drain(queue, lambda message: seen.append((message.schedule, message.slot, message.headers)))
    assert sorted(seen, key=str) == [
        ("tick", at("22:15"), {"tenant": "acme"}),
        (None, None, {"a": 1}),
    ]


def test_headers_of_an_occurrence_can_be_passed_on(queue: Queue, now: Now, drain: Drain):
    queue.schedules.add("tick", "*/5 * * * *", headers={"tenant": "acme"})
    now.later(2 * MINUTE)
    drain(queue, lambda message: Ack(then=[Outgoing("on", id="on", delay=MINUTE, headers=message.headers)]))
    info = queue.get("on")
    assert info is not None
    assert (info.headers, info.schedule) == ({"tenant": "acme"}, None)


def test_info_of_an_occurrence_has_its_schedule_and_slot(queue: Queue):
    queue.schedules.add("tick", "*/5 * * * *", headers={"tenant": "acme"})
    (info,) = queue.peek("pending")
    assert (info.schedule, info.slot, info.headers) == ("tick", at("22:15"), {"tenant": "acme"})
    assert queue.why(info.id).startswith(f"{info.id}, an occurrence of schedule tick, is not due")


# -- what keeps them ---------------------------------------------------------------------------------------------------


def dead(queue: Queue, now: Now) -> str:
    """Let an occurrence become a dead letter; return its id."""
    queue.schedules.add("tick", "*/5 * * * *", {"a": 1}, headers={"tenant": "acme"})
    now.later(2 * MINUTE)
    (message,) = queue.receive()
    message.reject("broken")
    return message.id


def occurs_again(queue: Queue, message_id: str) -> Message:
    (message,) = queue.receive()
    assert (message.id, message.schedule, message.slot) == (message_id, "tick", at("22:15"))
    return message


@pytest.mark.parametrize("headers", [{}, {"b": 2}, None])
def test_edit_of_an_occurrence_changes_only_the_headers_of_its_sender(
    queue: Queue, now: Now, headers: dict[str, Any] | None
):
    message_id = dead(queue, now)
    assert queue.dead.edit(message_id, payload="new", headers=headers)
    message = occurs_again(queue, message_id)
    assert (message.payload, message.headers) == ("new", {"tenant": "acme"} if headers is None else headers)


def test_requeued_and_redriven_occurrence_still_is_one(queue: Queue, now: Now):
    message_id = dead(queue, now)
    queue.dead.requeue([message_id])
    occurs_again(queue, message_id).reject("again")
    queue.dead.redrive(headers={"tenant": "acme"})
    occurs_again(queue, message_id).nack(delay=0)
    occurs_again(queue, message_id)


# -- which messages are none -------------------------------------------------------------------------------------------


def test_message_that_is_no_occurrence_by_its_id_is_an_ordinary_message(queue: Queue):
    for message_id in ("a", "tick@2", "tick@1~", "tick@1~x", "other@1", "tick@01", "tick@1 "):
        write(queue, message_id, {NAME: "tick", SLOT: 1, PLAN: plan(own=True), "tenant": "acme"})
    messages = queue.receive(10)
    assert len(messages) == 7
    assert {(each.schedule, each.slot) for each in messages} == {(None, None)}
    assert [each.headers for each in messages] == [{"tenant": "acme"}] * 7


FAKES = [plan("* * * * * *"), plan("0 0 1 1 *", missed="skip"), plan("every 1s", end_ms=1), plan("junk"), b"", 5]


@pytest.mark.parametrize("fake", FAKES)
def test_occurrence_that_another_client_has_overwritten_does_not_decide_what_comes_next(
    queue: Queue, now: Now, fake: Any
):
    queue.schedules.add("tick", "*/5 * * * *", "real")
    (waiting,) = queue.peek("pending")
    slot_ms = timestamp_ms(at("22:15"))
    write(queue, waiting.id, {NAME: "tick", SLOT: slot_ms, PLAN: fake}, slot_ms)
    now.later(2 * MINUTE)
    (message,) = queue.receive()
    assert message.payload == b"x"
    message.ack()
    for _ in range(2):  # a page of schedules, and none after it
        queue.execute(schedule_chain.revive)
    (waiting,) = queue.peek("pending")
    assert (waiting.payload, waiting.slot) == ("real", at("22:20"))


def test_message_with_the_id_of_a_coming_slot_does_not_stop_the_schedule(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *")
    following = occurrence_id("tick", timestamp_ms(at("22:20")), len(queue._context.shards))
    queue.send("mine", id=following, delay=YEAR)
    now.later(2 * MINUTE)
    assert taken(queue) == [at("22:15")]
    now.later(5 * MINUTE)
    (slot,) = taken(queue)
    assert at("22:20") < slot <= at("22:20") + dt.timedelta(seconds=1)
    now.later(5 * MINUTE)
    assert taken(queue) == [at("22:25")]
    mine = queue.get(following)
    assert mine is not None
    assert (mine.payload, mine.state) == ("mine", "pending")


# -- what another client has stored as a schedule ----------------------------------------------------------------------


@pytest.mark.same_on_all_clients
def test_stored_plan_of_any_content_keeps_no_other_schedule_from_its_next_slot(
    queue: Queue, now: Now, client: redis.Redis
):
    queue.schedules.add("tick", "*/5 * * * *", "real")
    keys = queue._context.shards[0].keys
    for number, each in enumerate([*PLANS, 5, True, None, b"\xff", 2**63]):
        name = f"foreign {number}"
        client.hset(keys.schedules, name, encode_envelope("x", 0, own={NAME: name, PLAN: each}))
        client.zadd(keys.armed, {name: 1})
    (waiting,) = [each for each in queue.peek("pending", limit=1000) if each.schedule == "tick"]
    queue.cancel(waiting.id)
    for _ in range(2):
        queue.execute(schedule_chain.revive)
        queue.execute(schedule_chain.bring_back)
    assert {each.name for each in queue.schedules.list()} > {"tick"}
    queue.schedules.next(3)
    examine(queue, repair=True)
    now.later(7 * MINUTE)
    assert "tick" in {each.schedule for _ in range(5) for each in queue.receive(100)}
