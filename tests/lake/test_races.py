"""Changes that meet a load, or break off: Redis decides, and a message comes once."""

from __future__ import annotations

import datetime as dt
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from delayq import Queue
from delayq.errors import LakeMismatch
from delayq.lake import layout
from delayq.lake import load as loading
from delayq.lake.deferred_messages import HOLD_MS
from delayq.lake.queue_folder import QueueFolder
from tests.harness.lake.lakes import DAY, HOUR, Clock, counted, delivered, far_queue, files, load
from tests.harness.servers import RedisServer


@pytest.fixture
def queue(redis_server: RedisServer, lake: Path, clock: Clock) -> Iterator[Queue]:
    with far_queue(redis_server.url, lake, clock) as opened:
        opened.send("x", delay=DAY, id="a")
        yield opened


def interposed(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], Any], after: bool = False) -> None:
    """Let something happen just before the folder does what it does by this name, or just after, once."""
    original = getattr(QueueFolder, name)

    def instead(self: QueueFolder, *args: Any) -> Any:
        monkeypatch.setattr(QueueFolder, name, original)
        if not after:
            act()
        done = original(self, *args)
        if after:
            act()
        return done

    monkeypatch.setattr(QueueFolder, name, instead)


def broken(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let the folder fail at what it does by this name, once."""

    def fail() -> None:
        raise OSError("the disk is gone")

    interposed(monkeypatch, name, fail)


def forget_holds(client: Any) -> None:
    """Let the time pass for which changes hold marks."""
    for key in client.keys("delayq:{jobs}:unique:*"):
        if int(client.get(key)) >= layout.HELD:
            client.delete(key)


CHANGES: dict[str, Callable[[Queue], str]] = {
    "cancel": lambda queue: queue.cancel("a"),
    "to the lake": lambda queue: queue.reschedule("a", delay=2 * DAY),
    "to an earlier hour": lambda queue: queue.reschedule("a", delay=DAY / 2),
    "to Redis": lambda queue: queue.reschedule("a", delay=HOUR),
}
change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
DONE = ("cancelled", "rescheduled")


def all_deliveries(queue: Queue, lake: Path, clock: Clock) -> list[str]:
    """What comes within four days of loads."""
    came = []
    for _ in range(16):
        clock.later(DAY / 4)
        load(queue, lake)
        came += [each.id for each in delivered(queue)]
    return came


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@change
def test_change_of_a_message_that_is_loaded_while_it_is_looked_for_is_made_in_redis(
    queue: Queue,
    lake: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Queue], str],
    after: bool,
):
    clock.later(DAY - HOUR)
    interposed(monkeypatch, "find", lambda: load(queue, lake), after)
    told = change(queue)
    assert told in DONE
    assert all_deliveries(queue, lake, clock) == ([] if told == "cancelled" else ["a"])


@change
def test_change_of_a_message_that_is_delivered_while_it_is_looked_for_comes_too_late(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, change: Callable[[Queue], str]
):
    clock.later(DAY)
    interposed(monkeypatch, "find", lambda: load(queue, lake) and delivered(queue), after=True)
    assert change(queue) == "unknown"
    assert all_deliveries(queue, lake, clock) == []


def test_message_that_is_delivered_while_it_is_looked_for_is_gone(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    clock.later(DAY)
    interposed(monkeypatch, "find", lambda: load(queue, lake) and delivered(queue), after=True)
    assert queue.get("a") is None


@change
def test_change_of_a_message_that_was_sent_by_a_load_which_is_not_over_is_made_in_redis(
    queue: Queue, lake: Path, clock: Clock, change: Callable[[Queue], str]
):
    clock.later(DAY - HOUR)
    folder, told = QueueFolder(str(lake), "jobs"), []

    def then_change(tasks: Any) -> Any:
        loaded = [loading.load(queue, folder, task) for task in tasks]
        told.append(change(queue))
        return loaded

    assert counted(load(queue, lake, load_files=then_change), "sent") == (1,)
    assert told[0] in DONE
    assert all_deliveries(queue, lake, clock) == ([] if told == ["cancelled"] else ["a"])


@pytest.mark.parametrize("change", ["cancel", "to the lake"])
def test_load_leaves_what_is_being_changed_to_the_next_one(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, change: str
):
    clock.later(DAY - HOUR)
    met: list[Any] = []
    interposed(monkeypatch, "withdraw", lambda: met.extend(load(queue, lake)))
    told = CHANGES[change](queue)
    assert told in DONE
    assert counted(met, "sent", "held") == (0, 1)
    assert counted(load(queue, lake), "sent", "cancelled") == (0, 1)
    assert all_deliveries(queue, lake, clock) == ([] if told == "cancelled" else ["a"])


@pytest.mark.parametrize("change", ["cancel", "to the lake", "to an earlier hour"])
def test_change_that_breaks_off_changes_nothing(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, change: str
):
    broken(monkeypatch, "withdraw")
    with pytest.raises(OSError, match="the disk is gone"):
        CHANGES[change](queue)
    forget_holds(redis_client)
    info = queue.get("a")
    assert info is not None
    assert (info.state, info.due_at) == ("deferred", clock.now + dt.timedelta(days=1))
    assert all_deliveries(queue, lake, clock) == ["a"]


def test_move_into_redis_that_breaks_off_has_moved_it(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    broken(monkeypatch, "withdraw")
    with pytest.raises(OSError, match="the disk is gone"):
        CHANGES["to Redis"](queue)
    assert all_deliveries(queue, lake, clock) == ["a"]


def test_file_of_a_move_that_is_under_way_is_left_to_the_next_load(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    met: list[Any] = []

    def meet() -> None:
        clock.later(2 * DAY - HOUR)
        met.extend(load(queue, lake))

    interposed(monkeypatch, "withdraw", meet)
    assert CHANGES["to the lake"](queue) == "rescheduled"
    assert counted(met, "sent", "held") == (0, 2)
    assert counted(load(queue, lake), "sent", "cancelled") == (1, 1)


def test_move_that_stood_still_for_longer_than_its_hold_has_moved_nothing(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """A load of the new hour may have passed by its row meanwhile, as one that never came to rest."""

    def stand_still() -> None:
        client: Any = queue._executor.client
        (held,) = client.keys("*:unique:*")
        client.delete(held)
        load(queue, lake, until=clock.now + dt.timedelta(days=2))

    before = queue.get("a")
    assert before is not None
    interposed(monkeypatch, "write", stand_still, after=True)
    with pytest.raises(LakeMismatch, match="took too long: try again"):
        queue.reschedule("a", delay=2 * DAY)
    clock.later(DAY)
    assert [message.id for message in delivered(queue)] == ["a"]
    clock.later(DAY)
    load(queue, lake, until=clock.now)
    assert delivered(queue) == []


@pytest.mark.parametrize("is_delivered", [False, True], ids=["loaded", "delivered"])
def test_cancel_that_stood_still_for_longer_than_its_hold_tells_what_a_load_has_made_of_the_message(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, is_delivered: bool
):
    came: list[str] = []

    def stand_still() -> None:
        forget_holds(redis_client)
        clock.later(DAY)
        assert counted(load(queue, lake), "sent") == (1,)
        if is_delivered:
            came.extend(each.id for each in delivered(queue))

    interposed(monkeypatch, "withdraw", stand_still)
    assert queue.cancel("a") == ("unknown" if is_delivered else "cancelled")
    assert came + all_deliveries(queue, lake, clock) == (["a"] if is_delivered else [])


def test_message_that_was_cancelled_is_not_sent_by_a_load_that_looked_for_changes_before(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    def cancel_and_stand_still() -> None:
        interposed(monkeypatch, "withdraw", lambda: forget_holds(redis_client), after=True)
        assert queue.cancel("a") == "cancelled"

    clock.later(DAY - HOUR)
    interposed(monkeypatch, "changes", cancel_and_stand_still, after=True)
    assert counted(load(queue, lake), "sent", "held") == (0, 1)
    assert all_deliveries(queue, lake, clock) == []


def test_load_that_stood_still_behind_its_look_for_changes_sends_nothing(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    def stand_still() -> None:
        assert queue.cancel("a") == "cancelled"
        forget_holds(redis_client)
        clock.later(HOLD_MS / 1000)

    clock.later(DAY - HOUR)
    interposed(monkeypatch, "changes", stand_still, after=True)
    with pytest.raises(LakeMismatch, match=r"stood still .*: the next load completes it"):
        load(queue, lake)
    assert counted(load(queue, lake), "sent", "cancelled") == (0, 1)
    assert all_deliveries(queue, lake, clock) == []


def test_message_that_is_being_changed_is_not_replaced_by_a_second_one(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    def replace_meanwhile() -> None:
        with pytest.raises(LakeMismatch, match="is being changed"):
            queue.send("y", delay=DAY, id="a", on_conflict="replace")

    interposed(monkeypatch, "withdraw", replace_meanwhile)
    assert queue.reschedule("a", delay=2 * DAY) == "rescheduled"
    assert (queue.stats().sent, queue.stats().inside) == (0, 0)


def test_of_two_changes_at_once_one_is_made(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []

    def meet() -> None:
        for each in CHANGES.values():
            with pytest.raises(LakeMismatch, match=r"a is being changed .*: try again in some minutes"):
                each(queue)
        told.append("refused")

    interposed(monkeypatch, "withdraw", meet)
    assert queue.reschedule("a", delay=2 * DAY) == "rescheduled"
    assert told == ["refused"]
    info = queue.get("a")
    assert info is not None
    assert info.state == "deferred"
    assert queue.cancel("a") == "cancelled"


@change
def test_change_after_one_that_broke_off_is_refused_until_that_holds_the_message_no_more(
    queue: Queue,
    redis_client: Any,
    lake: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Queue], str],
):
    broken(monkeypatch, "withdraw")
    with pytest.raises(OSError, match="the disk is gone"):
        queue.cancel("a")
    with pytest.raises(LakeMismatch, match="a is being changed"):
        change(queue)
    forget_holds(redis_client)
    told = change(queue)
    assert told in DONE
    assert all_deliveries(queue, lake, clock) == ([] if told == "cancelled" else ["a"])


def test_hold_that_runs_out_while_a_load_looks_at_it_loses_no_message(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    broken(monkeypatch, "withdraw")
    with pytest.raises(OSError, match="the disk is gone"):
        queue.cancel("a")
    look = loading.marks

    def look_late(*args: Any) -> Any:
        forget_holds(redis_client)
        return look(*args)

    monkeypatch.setattr(loading, "marks", look_late)
    clock.later(DAY - HOUR)
    assert counted(load(queue, lake), "sent", "existing", "held") == (0, 0, 1)
    assert all_deliveries(queue, lake, clock) == ["a"]


@pytest.mark.parametrize("skew", [-DAY, DAY], ids=["behind", "ahead"])
def test_clock_of_the_file_server_does_not_decide_whether_a_move_is_under_way(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, skew: int
):
    met: list[Any] = []

    def meet() -> None:
        for path in files(lake):
            os.utime(path, (time.time() + skew,) * 2)
        met.extend(load(queue, lake, until=clock.now + dt.timedelta(days=2)))

    interposed(monkeypatch, "withdraw", meet)
    assert CHANGES["to the lake"](queue) == "rescheduled"
    assert counted(met, "sent", "held", "void") == (0, 2, 0)
    assert all_deliveries(queue, lake, clock) == ["a"]


def test_move_that_is_made_while_a_load_asks_for_it_is_loaded(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """The change is written between the look at it and the question to Redis whether somebody is writing it."""
    assert CHANGES["to the lake"](queue) == "rescheduled"
    is_there, looks = QueueFolder.is_there, [False]
    monkeypatch.setattr(QueueFolder, "is_there", lambda *args: looks.pop() if looks else is_there(*args))
    clock.later(2 * DAY - HOUR)
    assert counted(load(queue, lake), "sent", "cancelled", "held", "void") == (1, 1, 0, 0)


def test_file_of_a_move_that_broke_off_is_void_once_the_message_is_held_no_more(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    broken(monkeypatch, "withdraw")
    with pytest.raises(OSError, match="the disk is gone"):
        CHANGES["to the lake"](queue)
    clock.later(2 * DAY - HOUR)
    assert counted(load(queue, lake), "sent", "held", "void") == (0, 2, 0)
    forget_holds(redis_client)
    assert counted(load(queue, lake), "sent", "held", "void") == (1, 0, 1)
