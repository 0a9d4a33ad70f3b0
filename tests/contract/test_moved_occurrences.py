"""What operators and senders do to occurrences and to their ids: each slot has its run, on time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.errors import DelayqError
from delayq.model.occurrence import occurrence_id
from delayq.model.units import timestamp_ms
from delayq.operations import schedule_chain
from delayq.operations.bulk import actions
from tests.contract.conftest import Now, examine, intercept
from tests.contract.test_schedules import arms, at, taken

MINUTE = 60.0
YEAR = 365 * 86_400.0
FAR_MS = timestamp_ms(at("22:00")) + int(YEAR * 1000)


def id_of(queue: Queue, time: str, name: str = "tick") -> str:
    queue.configure()  # so that the number of shards is known
    return occurrence_id(name, timestamp_ms(at(time)), len(queue._context.shards))


def minutes(*numbers: int) -> list[dt.datetime]:
    return [at(f"22:{number}") for number in numbers]


def slots_of(queue: Queue, now: Now, count: int, revives: bool = False) -> list[dt.datetime]:
    """Take what is due each minute; return the slots."""
    found = []
    for _ in range(count):
        now.later(MINUTE)
        found += taken(queue)
        if revives:
            queue.execute(schedule_chain.revive)
    return found


def ack_then(queue: Queue, id: str) -> None:
    queue.send("first", id=id_of(queue, "00:00", "first"))  # on the same shard
    (first,) = queue.receive()
    first.ack(then=[Outgoing("mine", id=id, on_conflict="replace", delay=YEAR)])


Move = Callable[[Any, str], object]
MOVES: dict[str, Move] = {
    "reschedule": lambda queue, id: queue.reschedule(id, delay=YEAR),
    "reschedule several": lambda queue, id: queue.execute(actions.each, actions.rescheduling(FAR_MS), ["a", id]),
    "shift several": lambda queue, id: queue.execute(
        actions.each, actions.retiming(actions.shifted(int(YEAR * 1000))), ["a", id]
    ),
    "cancel several": lambda queue, id: queue.execute(actions.each, actions.cancelling, ["a", id]),
    "bury several": lambda queue, id: queue.execute(actions.each, actions.burying, ["a", id]),
    "replace": lambda queue, id: queue.send("mine", id=id, on_conflict="replace", delay=YEAR),
    "replace several": lambda queue, id: queue.send_many(
        [Outgoing("mine", id="a", delay=YEAR), Outgoing("mine", id=id, on_conflict="replace", delay=YEAR)]
    ),
    "ack and replace": ack_then,
}


# -- occurrences that somebody moves -----------------------------------------------------------------------------------


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_moved_occurrence_leaves_out_only_its_slot(queue: Queue, now: Now, move: Move):
    queue.schedules.add("tick", "* * * * *")
    move(queue, id_of(queue, "22:14"))
    assert slots_of(queue, now, 3) == minutes(15, 16)
    assert (queue.stats().missing, examine(queue).healthy) == (0, True)


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_rescheduled_run_happens_at_its_new_time_and_the_others_at_theirs(queue: Queue, now: Now, missed: Any):
    queue.schedules.add("tick", "* * * * *", missed=missed)
    assert queue.reschedule(id_of(queue, "22:14"), at=at("22:16") + dt.timedelta(seconds=10)) == "rescheduled"
    assert slots_of(queue, now, 4) == minutes(15, 16, 14, 17)
    assert (queue.stats().expired, queue.stats().slots_missed, queue.stats().missing) == (0, 0, 0)


def test_run_moved_forward_happens_once(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *")
    queue.reschedule(id_of(queue, "22:15"), delay=0)
    assert taken(queue) == [at("22:15")]
    assert slots_of(queue, now, 9) == minutes(20)


def test_occurrences_moved_one_after_the_other_each_happen_once(queue: Queue, now: Now):
    queue.schedules.add("tick", "* * * * *", "before")
    for minute in (14, 15, 16):
        queue.reschedule(id_of(queue, f"22:{minute}"), at=at("22:18"))
    queue.schedules.add("tick", "* * * * *", "after")  # its next slot would be one that was moved
    assert slots_of(queue, now, 6) == minutes(17, *sorted((14, 15, 16)), 18, 19)
    assert queue.stats().missing == 0


def test_last_slot_that_is_moved_still_happens(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *", end=at("22:15"))
    queue.reschedule(id_of(queue, "22:15"), at=at("22:17"))
    (known,) = queue.schedules.list()
    assert known.finished
    assert slots_of(queue, now, 6) == minutes(15)


@pytest.mark.same_on_all_clients
def test_schedule_continues_when_arming_is_refused_as_its_occurrence_is_moved(
    queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch
):
    queue.schedules.add("tick", "* * * * *")
    with monkeypatch.context() as patch:
        intercept(queue, patch, before=lambda calls: [DelayqError("no room")] if arms(calls) else None)
        queue.reschedule(id_of(queue, "22:14"), delay=YEAR)
    assert slots_of(queue, now, 3, revives=True) == minutes(15, 16)


WHERE = {"pending": FAR_MS, "ready": FAR_MS, "retry": FAR_MS, "unack": FAR_MS}


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("state", WHERE)
def test_schedule_does_not_wait_for_one_occurrence(queue: Queue, now: Now, client: redis.Redis, state: str):
    """An older client has moved it, or could not arm the next one when it took it."""
    armed = queue.schedules.add("tick", "* * * * *")
    keys = queue._context.shards[0].keys
    client.zrem(keys.pending, armed.next_id or "")
    client.zadd(keys.state(state), {armed.next_id or "": WHERE[state]})  # type: ignore[arg-type]
    assert slots_of(queue, now, 5, revives=True)[-2:] == minutes(17, 18)


# -- ids of slots ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
@pytest.mark.parametrize("before", [True, False])
def test_schedule_fires_at_each_slot_whose_id_another_message_has(queue: Queue, now: Now, missed: Any, before: bool):
    if not before:
        queue.schedules.add("tick", "* * * * *", missed=missed)
    others = [
        Outgoing("mine", id=id_of(queue, f"22:{minute}"), delay=YEAR) for minute in range(14 if before else 15, 30)
    ]
    queue.send_many(others)
    if before:
        queue.schedules.add("tick", "* * * * *", missed=missed)
    found = []
    for _ in range(4):
        now.later(MINUTE)
        found += taken(queue)
    assert [each.replace(second=0, microsecond=0) for each in found] == minutes(14, 15, 16, 17)
    assert all(each - each.replace(second=0, microsecond=0) <= dt.timedelta(seconds=1) for each in found)
    assert {queue.get(str(each.id)).payload for each in others} == {"mine"}  # type: ignore[union-attr]
    assert (queue.stats().missing, examine(queue).healthy) == (0, True)


def test_schedule_of_seconds_fires_in_the_second_whose_id_another_message_has(queue: Queue, now: Now):
    queue.schedules.add("tick", "every 1s")
    first = int(now.ms) // 1000 * 1000 + 2000
    ids = [occurrence_id("tick", each, len(queue._context.shards)) for each in range(first, first + 8000, 1000)]
    queue.send_many([Outgoing("mine", id=id, delay=YEAR) for id in ids])
    found = []
    for _ in range(76):
        now.later(0.1)
        found += taken(queue)
    assert [timestamp_ms(each) // 1000 for each in found] == list(range(first // 1000 - 1, first // 1000 + 6))


def test_id_of_a_slot_is_legal_and_its_schedule_can_be_paused_changed_and_removed(queue: Queue):
    for act in ("pause", "remove"):
        queue.send("mine", id=id_of(queue, "22:14"), delay=YEAR)
        queue.schedules.add("tick", "* * * * *", "x")
        queue.schedules.add("tick", "* * * * *", "y")
        getattr(queue.schedules, act)("tick")
        mine = queue.get(id_of(queue, "22:14"))
        assert mine is not None
        assert (mine.payload, [each.payload for each in queue.peek("pending")]) == ("mine", ["mine"])
        queue.schedules.resume("tick")
    assert queue.stats().missing == 0


def test_ids_of_all_times_of_a_second_cannot_stop_a_schedule(queue: Queue):
    queue.configure()  # so that the number of shards is known
    slot = timestamp_ms(at("22:14"))
    ids = [occurrence_id("tick", slot + ms, len(queue._context.shards)) for ms in range(1000)]
    queue.send_many([Outgoing("mine", id=id, delay=YEAR) for id in ids])
    queue.schedules.add("tick", "* * * * *")
    (waiting,) = [each for each in queue.peek("pending", limit=2000) if each.schedule]
    assert slot + 1000 <= timestamp_ms(waiting.due_at or at("22:14")) < slot + 60_000


# -- lateness ----------------------------------------------------------------------------------------------------------


def rescheduled(queue: Any, id: str) -> None:
    queue.reschedule(id, delay=3600)


def requeued(queue: Any, id: str) -> None:
    queue.dead.bury(id)
    queue.dead.requeue(id, delay=3600)


def redriven(queue: Any, id: str) -> None:
    queue.dead.bury(id)
    queue.dead.redrive(delay=3600)


def edited(queue: Any, id: str) -> None:
    queue.dead.bury(id)
    assert queue.dead.edit(id, payload="edited", delay=3600)


def several(queue: Any, id: str) -> None:
    queue.execute(actions.each, actions.burying, [id])
    queue.execute(actions.each, actions.requeueing("+3600000"), [id])


SET: dict[str, Callable[[Any, str], None]] = {
    "rescheduled": rescheduled,
    "requeued": requeued,
    "redriven": redriven,
    "edited": edited,
    "several": several,
    "retimed": lambda queue, id: queue.execute(actions.each, actions.retiming(actions.shifted(3_600_000)), [id]),
}


@pytest.mark.parametrize("late", [False, True], ids=["while it waits", "when it is overdue"])
@pytest.mark.parametrize("act", SET.values(), ids=SET)
def test_lateness_counts_from_the_due_time_that_somebody_has_set(
    queue: Queue, now: Now, act: Callable[[Any, str], None], late: bool
):
    queue.schedules.add(
        "tick", "@yearly", missed="skip", grace=1, start=at("22:00"), end=at("22:00") + dt.timedelta(400)
    )
    (waiting,) = queue.peek("pending")
    id, due = waiting.id, timestamp_ms(waiting.due_at or at("22:00"))
    now.ms = due + (10_000 if late else -10_000)
    act(queue, id)
    (waiting,) = [each for each in queue.peek("pending") if each.id == id]
    assert timestamp_ms(waiting.due_at or at("22:00")) > due + 60_000
    now.ms = timestamp_ms(waiting.due_at or at("22:00")) + 900
    (message,) = queue.receive()
    assert (message.id, message.attempt) == (id, 1)
    message.ack()
    assert (queue.stats().expired, queue.stats().missing) == (0, 0)


def test_occurrence_later_than_its_new_due_time_and_the_grace_is_skipped(queue: Queue, now: Now):
    queue.schedules.add("tick", "@hourly", missed="skip", grace=10)
    id = queue.schedules.get("tick").next_id or ""  # type: ignore[union-attr]
    queue.reschedule(id, delay=60)
    now.later(80)
    assert queue.receive() == []
    assert (queue.stats().expired, queue.get(id)) == (1, None)


def test_run_now_is_never_late(queue: Queue, now: Now):
    queue.schedules.add("tick", "@yearly", missed="skip", grace=0)
    queue.schedules.run_now("tick")
    now.later(3600)
    assert [each.schedule for each in queue.receive()] == ["tick"]


def test_headers_passed_on_to_another_queue_lose_no_message(queue: Queue, now: Now, make: Callable[..., Queue]):
    other = make("other")
    queue.schedules.add("tick", "* * * * *", missed="skip", grace=0, headers={"tenant": "a"})
    now.ms = timestamp_ms(at("22:14"))
    (message,) = queue.receive()
    message.ack(then=[Outgoing("on", headers=message.headers)])
    other.send("on", headers=message.headers, delay=60)
    now.later(120)
    assert [(each.payload, each.headers) for each in other.receive()] == [("on", {"tenant": "a"})]
