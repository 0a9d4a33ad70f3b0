"""Schedules, on each kind of client: what arms the next slot, and what happens to missed ones."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import markupsafe
import pytest
import redis

from delayq import Message, Queue
from delayq.errors import DelayqError, InvalidInput, ServerUnreachable
from delayq.operations import schedule_chain, schedules
from delayq.operations.upkeep import Upkeep
from tests.contract.conftest import Calls, Drain, Make, Now, examine, intercept
from tests.harness.foreign_headers import NAME, PLAN, SLOT, write

MINUTE = 60.0


def slot_of(message: Message) -> dt.datetime:
    assert message.slot is not None
    return message.slot


def taken(queue: Queue) -> list[dt.datetime]:
    """Receive and ack what is due, one after the other; return the slots."""
    slots = []
    while messages := queue.receive(1):
        slots.append(slot_of(messages[0]))
        messages[0].ack()
    return slots


def at(time: str) -> dt.datetime:
    return dt.datetime.fromisoformat(f"2023-11-14T{time}:00+00:00")


# -- adding and changing schedules -------------------------------------------------------------------------------------


def test_added_schedule_is_known_and_armed(queue: Queue):
    added = queue.schedules.add("tick", "*/5 * * * *", {"n": 1}, headers={"tenant": "a"}, max_retries=7)
    assert queue.schedules.get("tick") == added
    assert queue.schedules.list() == [added]
    assert (added.next_at, added.paused, added.payload, added.headers) == (
        at("22:15"),
        False,
        {"n": 1},
        {"tenant": "a"},
    )
    assert added.next_id is not None
    waiting = queue.get(added.next_id)
    assert waiting is not None
    assert (waiting.state, waiting.due_at, waiting.max_retries) == ("pending", at("22:15"), 7)


def test_adding_the_same_schedule_again_changes_nothing(queue: Queue):
    queue.schedules.add("tick", "*/5 * * * *", "x")
    queue.schedules.add("tick", "*/5 * * * *", "x")
    assert (queue.stats().sent, queue.stats().cancelled) == (1, 0)


def test_changed_retries_of_the_queue_leave_an_overdue_occurrence_due(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *", "x")
    now.later(7 * MINUTE)
    queue.configure(max_retries=8)
    queue.schedules.add("tick", "*/5 * * * *", "x")  # as a program does when it starts
    (message,) = queue.receive()
    assert (slot_of(message), message.max_retries) == (at("22:15"), 8)
    assert queue.stats().missing == 0


@pytest.mark.parametrize("change", [{"when": "*/10 * * * *"}, {"payload": "y"}, {"missed": "all"}], ids=repr)
def test_changing_a_schedule_replaces_its_waiting_occurrence(queue: Queue, now: Now, change: dict[str, Any]):
    options: dict[str, Any] = {"when": "*/5 * * * *", "payload": "x"}
    queue.schedules.add("tick", **options)
    changed = queue.schedules.add("tick", **options | change)
    (waiting,) = queue.peek("pending")
    assert (waiting.id, waiting.due_at) == (changed.next_id, changed.next_at)
    now.later(20 * MINUTE)
    (message,) = queue.receive()
    assert message.payload == (options | change)["payload"]
    assert queue.stats().missing == 0


def test_removing_a_schedule_removes_its_waiting_occurrence(queue: Queue):
    queue.schedules.add("tick", "*/5 * * * *")
    assert queue.schedules.remove("tick")
    assert not queue.schedules.remove("tick")
    assert (queue.peek("pending"), queue.schedules.list(), queue.schedules.get("tick")) == ([], [], None)


def test_schedule_removed_while_it_runs_does_not_continue(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *")
    now.later(2 * MINUTE)
    (message,) = queue.receive()
    queue.schedules.remove("tick")
    message.ack()
    now.later(3600)
    assert queue.receive() == []
    assert queue.stats().missing == 0


def test_next_reads_as_many_pages_of_schedules_as_it_needs(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schedules, "PAGE", 2)
    for name in "abcdefg":
        queue.schedules.add(name, "*/5 * * * *")
    queue.schedules.add("zero", "* * * * *")
    queue.schedules.add("last", "@daily")
    queue.schedules.add("paused", "* * * * *")
    queue.schedules.pause("paused")
    assert [slot.schedule for slot in queue.schedules.next(13)] == ["zero", *"abcdefg", *["zero"] * 5]
    assert "last" in {slot.schedule for slot in queue.schedules.next(400)}
    assert [each.name for each in queue.schedules.list()] == [*"abcdefg", "last", "paused", "zero"]


def test_paused_schedule_resumes_with_its_next_slot(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *", missed="all")
    assert queue.schedules.pause("tick")
    assert queue.schedules.pause("tick")
    now.later(60 * MINUTE)
    assert taken(queue) == []
    paused = queue.schedules.add("tick", "*/5 * * * *", "changed", missed="all")
    assert (paused.paused, paused.next_at, queue.schedules.next()) == (True, None, [])
    assert queue.schedules.resume("tick")
    assert queue.schedules.resume("tick")
    now.later(5 * MINUTE)
    (message,) = queue.receive()
    assert (slot_of(message), message.payload) == (at("23:15"), "changed")


def test_run_now_sends_an_extra_occurrence(queue: Queue):
    before = queue.schedules.add("tick", "*/5 * * * *", "x")
    queue.schedules.run_now("tick")
    (message,) = queue.receive()
    assert (message.payload, message.schedule, message.slot) == ("x", "tick", None)
    message.ack()
    assert queue.schedules.get("tick") == before
    queue.schedules.pause("tick")
    queue.schedules.run_now("tick")
    assert len(queue.receive()) == 1


@pytest.mark.parametrize("call", ["pause", "resume", "remove"])
def test_call_for_an_unknown_schedule_says_so(queue: Queue, call: str):
    assert getattr(queue.schedules, call)("nowhere") is False
    with pytest.raises(InvalidInput, match="add it first"):
        queue.schedules.run_now("nowhere")
    with pytest.raises(InvalidInput, match="add it first"):
        queue.schedules.next(name="nowhere")


BAD: list[dict[str, Any]] = [
    {"name": ""},
    {"name": 5},
    {"name": "x" * 225},
    {"when": "61 * * * *"},
    {"when": 5},
    {"when": ["*"]},
    {"timezone": "Europe/Berln"},
    {"timezone": None},
    {"missed": "never"},
    {"grace": 5},
    {"missed": "skip", "grace": -1},
    {"max_retries": -1},
    {"payload": float("nan")},
    {"headers": {"delayq-slot": 1}},
    {"start": dt.datetime(2024, 1, 1)},  # noqa: DTZ001  # naive
    {"end": dt.datetime(2024, 1, 1)},  # noqa: DTZ001  # naive
    {"end": 5},
    {"start": at("22:20"), "end": at("22:19")},
    {"when": "@yearly", "start": at("22:20"), "end": at("22:40")},
    {"jitter": -1},
    {"jitter": dt.timedelta(days=367)},
]


def test_bad_input_changes_nothing(queue: Queue, client: redis.Redis, subtests: pytest.Subtests):
    for bad in BAD:
        with subtests.test(bad=bad):
            with pytest.raises(InvalidInput):
                queue.schedules.add(**{"name": "tick", "when": "* * * * *"} | bad)
            assert client.keys("*") == []


# -- slots -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_each_slot_is_handed_out_once(queue: Queue, now: Now, missed: Any):
    queue.schedules.add("tick", "*/5 * * * *", missed=missed)
    slots = []
    for _ in range(26):
        now.later(MINUTE)
        slots += taken(queue)
    assert slots == [at("22:15"), at("22:20"), at("22:25"), at("22:30"), at("22:35")]
    assert queue.stats().missing == 0


AWAY: dict[str, tuple[dict[str, Any], list[str], int]] = {
    "once": ({"missed": "once"}, ["22:15"], 0),
    "skip": ({"missed": "skip"}, [], 1),
    "skip-with-grace": ({"missed": "skip", "grace": dt.timedelta(minutes=12)}, ["23:05", "23:10"], 1),
    "all": ({"missed": "all"}, [f"{22 + m // 60}:{m % 60:02}" for m in range(15, 75, 5)], 0),
}


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize(("options", "expected", "expired"), AWAY.values(), ids=AWAY)
def test_missed_slots_are_handled_as_the_schedule_says(
    queue: Queue, now: Now, options: dict[str, Any], expected: list[str], expired: int
):
    queue.schedules.add("tick", "*/5 * * * *", **options)
    now.later(60 * MINUTE)  # 23:13:20
    assert taken(queue) == [at(each) for each in expected]
    assert queue.stats().expired == expired
    now.later(2 * MINUTE)
    assert taken(queue) == [at("23:15")]
    assert queue.stats().missing == 0


@pytest.mark.parametrize(("missed", "count"), [("once", 1), ("skip", 0), ("all", 24)])
def test_missed_slots_after_a_day_without_a_consumer(queue: Queue, now: Now, drain: Drain, missed: Any, count: int):
    handled: list[dt.datetime] = []
    queue.schedules.add("tick", "@hourly", missed=missed)
    now.later(86_400)
    drain(queue, lambda message: handled.append(slot_of(message)), concurrency=1)
    assert len(handled) == count
    assert handled == sorted(handled)


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("late", [0, 3600])
@pytest.mark.parametrize("options", [each for each, _, _ in AWAY.values()], ids=AWAY)
def test_next_predicts_what_happens(queue: Queue, now: Now, options: dict[str, Any], late: float):
    queue.schedules.add("tick", "*/7 * * * *", timezone="Asia/Kolkata", **options)
    queue.schedules.add("tock", "every 11m", **options)
    now.later(late)
    slots = queue.schedules.next(5)
    happened: list[tuple[str | None, dt.datetime]] = []
    while len(happened) < 5:
        for message in queue.receive(1):
            happened.append((message.schedule, slot_of(message)))
            message.ack()
            break
        else:
            now.later(20)
    assert happened == [tuple(slot) for slot in slots]
    assert [slot.schedule for slot in queue.schedules.next(3, "tock")] == ["tock"] * 3


def test_retry_of_an_occurrence_is_not_a_new_slot_and_is_not_skipped(queue: Queue, now: Now):
    queue.schedules.add("tick", "@hourly", missed="skip", grace=1)
    now.later(47 * MINUTE - 20)
    (message,) = queue.receive()
    message.nack(600)
    now.later(600)
    (again,) = queue.receive()
    assert (again.id, again.attempt) == (message.id, 2)
    assert len(queue.peek("pending")) == 1


# -- start, end and jitter ---------------------------------------------------------------------------------------------


def test_schedule_fires_from_its_start_to_its_end_and_then_is_finished(queue: Queue, now: Now):
    added = queue.schedules.add("tick", "*/5 * * * *", start=at("22:20"), end=at("22:30"))
    assert (added.start, added.end, added.next_at, added.finished) == (at("22:20"), at("22:30"), at("22:20"), False)
    assert [slot.at for slot in queue.schedules.next(5)] == [at("22:20"), at("22:25"), at("22:30")]
    slots = []
    for _ in range(60):
        now.later(MINUTE)
        slots += taken(queue)
        queue.execute(schedule_chain.revive)
    assert slots == [at("22:20"), at("22:25"), at("22:30")]
    (finished,) = queue.schedules.list()
    assert (finished.finished, finished.paused, finished.next_at, finished.next_id) == (True, False, None, None)
    assert queue.schedules.next(5) == []
    assert (queue.stats().missing, examine(queue).healthy) == (0, True)


def test_finished_schedule_stays_so_until_it_is_added_with_a_later_end(queue: Queue, now: Now, drain: Drain):
    @queue.cron("*/5 * * * *", name="tick", end=at("22:20"))
    def tick(message: Message) -> None: ...

    for minutes in (0, 60, 60):
        now.later(minutes * MINUTE)
        drain(queue, None)
    (known,) = queue.schedules.list()
    assert (known.finished, queue.stats().sent) == (True, 1)
    with pytest.raises(InvalidInput, match="no further slots: add it with a later end"):
        queue.schedules.resume("tick")
    assert queue.schedules.add("tick", "*/5 * * * *", end=at("23:00")).finished
    later = queue.schedules.add("tick", "*/5 * * * *", end=at("22:20") + dt.timedelta(days=1))
    assert (later.finished, later.next_at) == (False, at("22:15") + dt.timedelta(hours=2))


def test_cancelling_the_last_slot_finishes_the_schedule(queue: Queue):
    armed = queue.schedules.add("tick", "*/5 * * * *", end=at("22:15"))
    assert queue.cancel(armed.next_id or "") == "cancelled"
    (known,) = queue.schedules.list()
    assert known.finished
    assert queue.schedules.run_now("tick")
    assert queue.schedules.remove("tick")


def test_schedule_that_ended_by_a_wrong_clock_continues_when_added_again(queue: Queue, now: Now):
    options: dict[str, Any] = {"when": "*/5 * * * *", "end": at("22:40")}
    queue.schedules.add("tick", **options)
    now.later(60 * MINUTE)
    assert len(taken(queue)) == 1
    now.ms -= 58 * 60_000
    assert queue.schedules.add("tick", **options).next_at == at("22:20")


ENDED: dict[str, list[str]] = {"once": ["22:15"], "skip": [], "all": ["22:15", "22:20", "22:25"]}


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("missed", ENDED)
def test_slots_missed_before_the_end_are_handled_after_it(queue: Queue, now: Now, missed: Any):
    queue.schedules.add("tick", "*/5 * * * *", missed=missed, end=at("22:28"))
    now.later(60 * MINUTE)
    assert taken(queue) == [at(each) for each in ENDED[missed]]
    (known,) = queue.schedules.list()
    assert (known.finished, queue.stats().missing) == (True, 0)


def test_each_slot_with_jitter_is_handed_out_once_however_it_is_armed(
    queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch
):
    queue.schedules.add("tick", "*/5 * * * *", jitter=240)
    expected = [slot.at for slot in queue.schedules.next(6)]
    assert [each.replace(minute=each.minute // 5 * 5, second=0, microsecond=0) for each in expected] == [
        at(f"22:{minute}") for minute in (15, 20, 25, 30, 35, 40)
    ]
    slots: list[dt.datetime] = []
    for _ in range(31 * 6):
        now.later(10)
        if len(slots) == 2:  # its next occurrence is lost, and revived
            with monkeypatch.context() as patch:
                intercept(queue, patch, before=lambda calls: [DelayqError("no")] * len(calls) if arms(calls) else None)
                slots += taken(queue)
            queue.execute(schedule_chain.revive)
        slots += taken(queue)
        queue.schedules.add("tick", "*/5 * * * *", jitter=240)
        queue.schedules.pause("tick")
        queue.schedules.resume("tick")
    assert slots == expected
    assert queue.stats().missing == 0


@pytest.mark.same_on_all_clients
def test_changed_jitter_runs_no_slot_twice(queue: Queue, now: Now):
    taken_slots = []
    for number in range(120):
        queue.schedules.add("tick", "*/5 * * * *", jitter=number // 7 % 5 * 60)
        now.later(60)
        taken_slots += taken(queue)
    nominal = [slot.replace(minute=slot.minute // 5 * 5, second=0, microsecond=0) for slot in taken_slots]
    assert len(nominal) >= 15
    assert nominal == sorted(set(nominal))


# -- crash windows -----------------------------------------------------------------------------------------------------


def test_next_occurrence_is_armed_before_the_handler_runs(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *")
    now.later(2 * MINUTE)
    queue.receive()
    (waiting,) = queue.peek("pending")
    assert waiting.due_at == at("22:20")


def test_occurrence_is_armed_even_if_its_consumer_dies_first(queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch):
    queue.schedules.add("tick", "*/5 * * * *", max_retries=0)
    now.later(2 * MINUTE)
    with monkeypatch.context() as patch:
        intercept(queue, patch, before=die_at_arm)
        with pytest.raises(Killed):
            queue.receive(lease=1)
    assert queue.peek("pending") == []
    now.later(2)
    assert queue.receive() == []  # it has had its one attempt
    (dead,) = queue.dead.list()
    assert dead.reason == "consumer-lost"
    assert [each.due_at for each in queue.peek("pending")] == [at("22:20")]


class Killed(BaseException):
    """The process is gone."""


def arms(calls: Calls) -> bool:
    return any(call.script is not None and call.script.name == "enqueue_occurrence" for call in calls)


def die_at_arm(calls: Calls) -> None:
    if arms(calls):
        raise Killed


@pytest.fixture
def no_upkeep() -> Iterator[None]:
    """Let receivers claim, and do nothing else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Upkeep, "_duties", lambda _: ())
        yield


@pytest.mark.usefixtures("no_upkeep")
def test_lost_reply_arms_nothing_twice(queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch):
    queue.schedules.add("tick", "*/5 * * * *")
    now.later(2 * MINUTE)
    lost: list[int] = []

    def lose(calls: Calls) -> None:
        if not lost and arms(calls):
            lost.append(1)
            raise ServerUnreachable("the reply is lost")

    intercept(queue, monkeypatch, after=lose)
    with pytest.raises(ServerUnreachable):
        queue.receive()
    (message,) = queue.receive()
    assert (slot_of(message), lost) == (at("22:15"), [1])
    assert [each.due_at for each in queue.peek("pending")] == [at("22:20")]
    assert (queue.stats().sent, queue.stats().missing) == (2, 0)


def test_redelivered_occurrence_of_a_past_slot_arms_nothing(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *", missed="all")
    now.later(2 * MINUTE)
    queue.receive(lease=400)
    now.later(5 * MINUTE)
    assert taken(queue) == [at("22:20")]
    now.later(2 * MINUTE)
    assert taken(queue) == [at("22:15")]
    assert [each.due_at for each in queue.peek("pending")] == [at("22:25")]
    assert (queue.stats().sent, queue.stats().missing) == (3, 0)


@pytest.mark.usefixtures("no_upkeep")
def test_message_is_handled_even_if_arming_the_next_is_refused(queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch):
    queue.schedules.add("tick", "*/5 * * * *")
    now.later(2 * MINUTE)
    with monkeypatch.context() as patch:
        intercept(queue, patch, before=lambda calls: [DelayqError("no room")] * len(calls) if arms(calls) else None)
        (message,) = queue.receive()
    message.ack()
    assert queue.peek("pending") == []
    assert queue.execute(schedule_chain.revive) == 1
    assert [each.due_at for each in queue.peek("pending")] == [at("22:20")]
    assert queue.execute(schedule_chain.revive) == 0


def revived(queue: Queue) -> int:
    """Go through all pages of the schedules; return how many were revived."""
    count = queue.execute(schedule_chain.revive)
    while queue._context.sweeps.armed:
        count += queue.execute(schedule_chain.revive)
    return count


def test_unreadable_records_do_not_keep_other_schedules_from_being_revived(queue: Queue, now: Now, client: redis.Redis):
    keys = queue._context.shards[0].keys
    for name in ("early", "late"):
        queue.schedules.add(name, "*/5 * * * *")
    queue.purge("pending")
    junk = [f"junk-{number:03}" for number in range(2 * schedule_chain.PAGE + 10)]
    client.hset(keys.schedules, mapping=dict.fromkeys(junk, "junk"))
    client.zadd(keys.armed, dict.fromkeys(junk, 1000.0) | {"early": 999})
    client.zadd(keys.armed, {bytes([0xFF, number]): 998 for number in range(schedule_chain.PAGE)})
    now.later(2 * MINUTE)
    assert revived(queue) == 2
    assert [each.due_at for each in queue.peek("pending")] == [at("22:20")] * 2
    assert queue.execute(schedule_chain.revive) == 0


def test_only_revived_schedules_are_counted(
    queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    for name in ("one", "two", "three"):
        queue.schedules.add(name, "*/5 * * * *")
    queue.purge("pending")
    now.later(2 * MINUTE)
    with monkeypatch.context() as patch:
        replies = [0, DelayqError("no room"), 1]  # another consumer was quicker, refused, done
        intercept(queue, patch, before=lambda calls: replies if arms(calls) else None)
        with pytest.raises(DelayqError, match="no room"):
            queue.execute(schedule_chain.revive)
    logged = [line for line in caplog.messages if "schedule" in line]
    assert ["revived" in line for line in logged] == [False, True]
    assert "not armed" in logged[0]
    assert revived(queue) + revived(queue) == 3  # the rest of the pages, and again from the first


@pytest.mark.same_on_all_clients
@pytest.mark.parametrize("state", ["pending", "ready", "unack", "retry"])
def test_schedule_with_a_live_occurrence_is_not_revived(queue: Queue, now: Now, client: redis.Redis, state: str):
    armed = queue.schedules.add("tick", "*/5 * * * *")
    now.later(2 * MINUTE)
    keys = queue._context.shards[0].keys
    if state != "pending":
        client.zrem(keys.pending, armed.next_id or "")
        client.zadd(keys.state(state), {armed.next_id or "": now.ms})  # type: ignore[arg-type]
    assert queue.execute(schedule_chain.revive) == 0


@pytest.mark.parametrize("missed", ["once", "skip", "all"])
def test_cancelling_an_occurrence_skips_only_its_slot(queue: Queue, now: Now, missed: Any):
    armed = queue.schedules.add("a@1~tick", "*/5 * * * *", missed=missed)
    now.later(MINUTE)
    assert queue.cancel(armed.next_id or "") == "cancelled"
    assert [each.due_at for each in queue.peek("pending")] == [at("22:20")]
    assert queue.cancel(armed.next_id or "") == "unknown"
    now.later(6 * MINUTE)
    assert taken(queue) == [at("22:20")]
    assert queue.stats().missing == 0


def test_burying_an_occurrence_skips_only_its_slot(queue: Queue, now: Now):
    armed = queue.schedules.add("tick", "*/5 * * * *")
    now.later(MINUTE)
    assert queue.dead.bury(armed.next_id or "") == "buried"
    assert [each.due_at for each in queue.peek("pending")] == [at("22:20")]
    now.later(6 * MINUTE)
    assert taken(queue) == [at("22:20")]
    assert (queue.stats().dead, queue.stats().missing) == (1, 0)


def test_cancelling_a_late_occurrence_skips_all_missed_slots(queue: Queue, now: Now):
    armed = queue.schedules.add("tick", "*/5 * * * *")
    now.later(20 * MINUTE)
    queue.cancel(armed.next_id or "")
    assert [each.due_at for each in queue.peek("pending")] == [at("22:35")]


def test_cancelling_a_message_with_an_id_like_a_slot_arms_nothing(queue: Queue):
    queue.schedules.add("tick", "*/5 * * * *")
    queue.schedules.pause("tick")
    for id in ("tick@1700000100000", "tock@1700000100000", "tick@x", "tick@"):
        queue.send("x", id=id, delay=60)
        assert queue.cancel(id) == "cancelled"
    assert queue.peek("pending") == []


def test_occurrence_is_cancelled_even_if_arming_the_next_is_refused(
    queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch
):
    armed = queue.schedules.add("tick", "*/5 * * * *")
    with monkeypatch.context() as patch:
        intercept(queue, patch, before=lambda calls: [DelayqError("no room")] * len(calls) if arms(calls) else None)
        assert queue.cancel(armed.next_id or "") == "cancelled"
    now.later(2 * MINUTE)
    assert queue.execute(schedule_chain.revive) == 1


@pytest.mark.parametrize("action", ["cancel", "purge"])
def test_schedule_outlives_its_occurrence(queue: Queue, now: Now, drain: Drain, action: str):
    armed = queue.schedules.add("tick", "*/5 * * * *")
    queue.cancel(armed.next_id or "") if action == "cancel" else queue.purge("pending")
    now.later(2 * MINUTE)
    handled: list[Message] = []
    drain(queue, handled.append)
    assert handled == []
    now.later(5 * MINUTE)
    drain(queue, handled.append)
    assert [slot_of(each) for each in handled] == [at("22:20")]


HOUR_MS = 3_600_000


def test_schedule_continues_after_the_clock_was_ahead_for_a_while(queue: Queue, now: Now, drain: Drain):
    queue.schedules.add("tick", "every 1s")
    now.ms += HOUR_MS
    assert len(taken(queue)) == 1
    now.ms -= HOUR_MS
    handled: list[Message] = []
    drain(queue, handled.append)
    now.later(1)
    drain(queue, handled.append)
    assert [slot_of(each) for each in handled] == [now.now()]
    assert [each.due_at for each in queue.peek("pending")] == [now.now() + dt.timedelta(seconds=1)]
    assert (queue.stats().missing, examine(queue).healthy) == (0, True)


def test_schedules_ahead_of_the_clock_are_brought_back_page_by_page(
    queue: Queue, now: Now, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(schedule_chain, "PAGE", 2)
    now.ms += HOUR_MS
    for name in ("one", "two", "three"):
        queue.schedules.add(name, "every 1s")
    now.ms -= HOUR_MS
    assert [queue.execute(schedule_chain.bring_back) for _ in range(3)] == [2, 1, 0]


def test_occurrences_cancelled_one_after_the_other_stay_cancelled(queue: Queue):
    queue.schedules.add("tick", "0 * * * *")
    for _ in range(2):
        (waiting,) = queue.peek("pending")
        queue.cancel(waiting.id)
    (waiting,) = queue.peek("pending")
    assert queue.execute(schedule_chain.bring_back) == 0
    assert queue.peek("pending")[0].id == waiting.id


@pytest.mark.parametrize(("when", "back_ms"), [("30 22 * * *", HOUR_MS), ("every 1s", 50_000)])
def test_clock_set_back_by_less_than_a_period_or_a_minute_runs_no_slot_twice(
    queue: Queue, now: Now, when: str, back_ms: int
):
    queue.schedules.add("tick", when)
    now.ms += HOUR_MS
    assert len(taken(queue)) == 1
    now.ms -= back_ms
    assert queue.execute(schedule_chain.bring_back) == 0


def test_message_with_an_unreadable_plan_is_handled_like_any_other(queue: Queue):
    plans = ["{", "{}", '{"when":"61 * * * *"}', '{"when":"* * * * *","timezone":"Mars"}', 5]
    for number, plan in enumerate(plans, 1):
        write(queue, f"tick@{number}", {NAME: "tick", SLOT: number, PLAN: plan})
    write(queue, "5@y", {NAME: 5, SLOT: "y"})
    assert len(queue.receive()) == 6
    assert queue.schedules.list() == []


# -- the doctor --------------------------------------------------------------------------------------------------------


def test_doctor_finds_nothing_on_a_queue_with_schedules(queue: Queue, now: Now):
    queue.schedules.add("tick", "*/5 * * * *")
    queue.schedules.add("paused", "*/5 * * * *")
    queue.schedules.pause("paused")
    now.later(2 * MINUTE)
    queue.receive()
    assert [finding for finding in examine(queue).findings if finding.kind != "persistence"] == []


WOUNDS: dict[str, Callable[[Any, Any], object]] = {
    "has a next slot but no definition": lambda client, keys: client.hdel(keys.schedules, "tick"),
    "cannot be read": lambda client, keys: client.hset(keys.schedules, "tick", "junk"),
    "has no next slot": lambda client, keys: client.zrem(keys.armed, "tick"),
    "has lost its next occurrence": lambda client, keys: client.zadd(keys.armed, {"tick": 1_600_000_000_000}),
}


@pytest.mark.parametrize("text", WOUNDS)
def test_doctor_finds_a_schedule_that_would_not_continue(queue: Queue, client: redis.Redis, text: str):
    queue.schedules.add("tick", "*/5 * * * *")
    WOUNDS[text](client, queue._context.shards[0].keys)
    found = [finding for finding in examine(queue).findings if finding.kind == "schedule"]
    assert [text in finding.text for finding in found] == [True]
    examine(queue, repair=True)
    left = [finding for finding in examine(queue).findings if finding.kind == "schedule"]
    assert len(left) == (text == "cannot be read")


@pytest.mark.parametrize("score", [1.5, float("inf"), 1e16])
def test_schedule_with_an_overwritten_slot_can_be_paused_and_removed(queue: Queue, client: redis.Redis, score: float):
    queue.schedules.add("tick", "*/5 * * * *")
    client.zadd(queue._context.shards[0].keys.armed, {"tick": score})
    assert queue.schedules.pause("tick")
    client.zadd(queue._context.shards[0].keys.armed, {"tick": score})
    assert queue.schedules.remove("tick")
    assert queue.schedules.list() == []


@pytest.mark.same_on_all_servers
def test_texts_of_a_subclass_are_taken_as_text(make: Make):
    text = markupsafe.Markup
    queue = make(text("jobs"))
    queue.schedules.add(text("tick"), text("*/5 * * * *"), text("x"), timezone=text("Europe/Berlin"))
    queue.schedules.run_now(text("tick"))
    queue.send(text("y"), id=text("a"), on_conflict=text("error"))  # type: ignore[arg-type]
    assert {message.payload for message in queue.receive()} == {"x", "y"}
    assert queue.get(text("a")) == queue.get("a")
