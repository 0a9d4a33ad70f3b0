"""Changes that meet a load, or are interrupted: Redis decides, and a message comes once."""

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
    """Call `act` once, just before or just after the folder's method of this name."""
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
    """Let the folder's method of this name fail once."""

    def fail() -> None:
        raise OSError("the disk is gone")

    interposed(monkeypatch, name, fail)


def forget_holds(client: Any) -> None:
    """Let the time pass after which the hold of a change ends."""
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
    """Everything that is delivered within four days of loads."""
    came = []
    for _ in range(16):
        clock.later(DAY / 4)
        load(queue, lake)
        came += [each.id for each in delivered(queue)]
    return came


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@change
def test_change_of_a_message_loaded_during_the_look_up_is_made_in_redis(
    queue: Queue,
    lake: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Queue], str],
    after: bool,
):
    clock.later(DAY - HOUR)
    interposed(monkeypatch, "find", lambda: load(queue, lake), after)
    outcome = change(queue)
    assert outcome in DONE
    assert all_deliveries(queue, lake, clock) == ([] if outcome == "cancelled" else ["a"])


@change
def test_change_of_a_message_delivered_during_the_look_up_comes_too_late(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, change: Callable[[Queue], str]
):
    clock.later(DAY)
    interposed(monkeypatch, "find", lambda: load(queue, lake) and delivered(queue), after=True)
    assert change(queue) == "unknown"
    assert all_deliveries(queue, lake, clock) == []


def test_message_delivered_during_the_look_up_is_not_found(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    clock.later(DAY)
    interposed(monkeypatch, "find", lambda: load(queue, lake) and delivered(queue), after=True)
    assert queue.get("a") is None


@change
def test_change_of_a_message_sent_by_an_unfinished_load_is_made_in_redis(
    queue: Queue, lake: Path, clock: Clock, change: Callable[[Queue], str]
):
    clock.later(DAY - HOUR)
    folder, calls = QueueFolder(str(lake), "jobs"), []

    def then_change(tasks: Any) -> Any:
        loaded = [loading.load(queue, folder, task) for task in tasks]
        calls.append(change(queue))
        return loaded

    assert counted(load(queue, lake, load_files=then_change), "sent") == (1,)
    assert calls[0] in DONE
    assert all_deliveries(queue, lake, clock) == ([] if calls == ["cancelled"] else ["a"])


@pytest.mark.parametrize("change", ["cancel", "to the lake"])
def test_load_leaves_messages_being_changed_to_the_next_load(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch, change: str
):
    clock.later(DAY - HOUR)
    met: list[Any] = []
    interposed(monkeypatch, "withdraw", lambda: met.extend(load(queue, lake)))
    outcome = CHANGES[change](queue)
    assert outcome in DONE
    assert counted(met, "sent", "held") == (0, 1)
    assert counted(load(queue, lake), "sent", "cancelled") == (0, 1)
    assert all_deliveries(queue, lake, clock) == ([] if outcome == "cancelled" else ["a"])


@pytest.mark.parametrize("change", ["cancel", "to the lake", "to an earlier hour"])
def test_interrupted_change_changes_nothing(
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


def test_interrupted_move_into_redis_still_moves_the_message(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    broken(monkeypatch, "withdraw")
    with pytest.raises(OSError, match="the disk is gone"):
        CHANGES["to Redis"](queue)
    assert all_deliveries(queue, lake, clock) == ["a"]


def test_file_of_an_unfinished_move_is_left_to_the_next_load(
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


def test_move_paused_for_longer_than_its_hold_moves_nothing(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """Meanwhile, a load of the new hour may have skipped its row because the move never finished."""

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
def test_cancel_paused_for_longer_than_its_hold_reports_what_a_load_did_with_the_message(
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


def test_cancelled_message_is_not_sent_by_a_load_that_looked_for_changes_earlier(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    def cancel_and_stand_still() -> None:
        interposed(monkeypatch, "withdraw", lambda: forget_holds(redis_client), after=True)
        assert queue.cancel("a") == "cancelled"

    clock.later(DAY - HOUR)
    interposed(monkeypatch, "changes", cancel_and_stand_still, after=True)
    assert counted(load(queue, lake), "sent", "held") == (0, 1)
    assert all_deliveries(queue, lake, clock) == []


def test_load_paused_after_its_look_for_changes_sends_nothing(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    def stand_still() -> None:
        assert queue.cancel("a") == "cancelled"
        forget_holds(redis_client)
        clock.later(HOLD_MS / 1000)

    clock.later(DAY - HOUR)
    interposed(monkeypatch, "changes", stand_still, after=True)
    with pytest.raises(LakeMismatch, match=r"was suspended .*: the next load completes it"):
        load(queue, lake)
    assert counted(load(queue, lake), "sent", "cancelled") == (0, 1)
    assert all_deliveries(queue, lake, clock) == []


def test_message_being_changed_cannot_be_replaced(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    def replace_meanwhile() -> None:
        with pytest.raises(LakeMismatch, match="is being changed"):
            queue.send("y", delay=DAY, id="a", on_conflict="replace")

    interposed(monkeypatch, "withdraw", replace_meanwhile)
    assert queue.reschedule("a", delay=2 * DAY) == "rescheduled"
    assert (queue.stats().sent, queue.stats().inside) == (0, 0)


def test_only_one_of_two_concurrent_changes_is_made(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    calls: list[str] = []

    def meet() -> None:
        for each in CHANGES.values():
            with pytest.raises(LakeMismatch, match=r"a is being changed .*: try again in a few minutes"):
                each(queue)
        calls.append("refused")

    interposed(monkeypatch, "withdraw", meet)
    assert queue.reschedule("a", delay=2 * DAY) == "rescheduled"
    assert calls == ["refused"]
    info = queue.get("a")
    assert info is not None
    assert info.state == "deferred"
    assert queue.cancel("a") == "cancelled"


@change
def test_change_after_an_interrupted_one_is_refused_until_its_hold_ends(
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
    outcome = change(queue)
    assert outcome in DONE
    assert all_deliveries(queue, lake, clock) == ([] if outcome == "cancelled" else ["a"])


def test_hold_that_ends_while_a_load_checks_it_loses_no_message(
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
def test_clock_of_the_file_server_does_not_affect_unfinished_moves(
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


def test_move_finished_while_a_load_asks_about_it_is_loaded(
    queue: Queue, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    """The change is written after the load has looked for it, and before it asks Redis whether one is being written."""
    assert CHANGES["to the lake"](queue) == "rescheduled"
    is_there, looks = QueueFolder.is_there, [False]
    monkeypatch.setattr(QueueFolder, "is_there", lambda *args: looks.pop() if looks else is_there(*args))
    clock.later(2 * DAY - HOUR)
    assert counted(load(queue, lake), "sent", "cancelled", "held", "void") == (1, 1, 0, 0)


def test_file_of_an_interrupted_move_is_void_once_its_hold_ends(
    queue: Queue, redis_client: Any, lake: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    broken(monkeypatch, "withdraw")
    with pytest.raises(OSError, match="the disk is gone"):
        CHANGES["to the lake"](queue)
    clock.later(2 * DAY - HOUR)
    assert counted(load(queue, lake), "sent", "held", "void") == (0, 2, 0)
    forget_holds(redis_client)
    assert counted(load(queue, lake), "sent", "held", "void") == (1, 0, 1)
