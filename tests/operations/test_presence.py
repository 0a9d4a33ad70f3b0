"""When a consumer sends its heartbeat: beside an operation that does not notice."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.errors import ServerUnreachable, StaleReceipt
from delayq.operations import presence as presence_module
from delayq.operations.presence import Presence
from delayq.operations.queue_context import QueueContext, Settings
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> QueueContext:
    """The context of a recorded queue, whose consumers send a heartbeat once an hour."""
    monkeypatch.setattr(presence_module, "SECONDS", 3600.0)
    context = QueueContext("jobs", "delayq", 1, Settings())
    context.is_recorded = True
    return context


@pytest.fixture
def at_once(context: QueueContext, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  # which appears seldom
    """Let a consumer send a heartbeat whenever it can."""
    monkeypatch.setattr(presence_module, "SECONDS", 0.0)


def noting(context: QueueContext, *times: int) -> Presence:
    """The presence of a consumer whose handlers' times have these counts, one per bucket."""
    return Presence(context, "me", lambda: b"{}", lambda: times)


def call(name: str) -> Command[str]:
    return Command("k", (name,), str)


def operation(seen: list[Any], trips: int = 1) -> Operation[str]:
    """Make round trips of one call each, and record their answers."""
    for number in range(trips):
        try:
            seen.append((yield [call(f"call {number}")]))
        except LookupError as error:
            seen.append(error)
    return "done"


def asked(calls: list[Command[Any]]) -> list[str]:
    return [each.script.name if each.script else str(each.args[0]) for each in calls]


def run(steps: Operation[str], *replies: Any) -> list[list[str]]:
    """Answer the round trips, raising errors, and return what each asked. The operation must end with the last one."""
    trips = [asked(next(steps))]
    for reply in replies:
        try:
            calls = steps.throw(reply) if isinstance(reply, Exception) else steps.send(reply)
        except StopIteration as stop:
            return trips if stop.value == "done" else pytest.fail(str(stop.value))
        trips.append(asked(calls))
    pytest.fail("the operation did not end")


def test_served_consumer_sends_a_heartbeat_and_then_not_for_a_while(context: QueueContext):
    presence, seen = noting(context), list[Any]()
    assert run(presence.beside(operation(seen)), ["a"]) == [["call 0"]]
    assert run(presence.beside(operation(seen)), ["b", 0, 0]) == [["call 0", "heartbeat", "sample"]]
    assert run(presence.beside(operation(seen)), ["c"]) == [["call 0"]]
    assert seen == [["a"], ["b"], ["c"]]


def test_first_round_trip_after_an_answered_one_carries_the_heartbeat(context: QueueContext):
    seen = list[Any]()
    trips = run(noting(context).beside(operation(seen, 3)), ["a"], ["b", 0, 0], ["c"])
    assert trips == [["call 0"], ["call 1", "heartbeat", "sample"], ["call 2"]]
    assert seen == [["a"], ["b"], ["c"]]


def test_refused_consumer_sends_no_heartbeat(context: QueueContext):
    trips = run(noting(context).beside(operation([], 2)), [StaleReceipt("no")], ["b"])
    assert trips == [["call 0"], ["call 1"]]


def test_operation_gets_the_error_of_its_round_trip(context: QueueContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(presence_module, "SECONDS", 0.0)
    presence, seen, error = noting(context), list[Any](), LookupError("lost")
    run(presence.beside(operation(seen)), ["a"])
    trips = run(presence.beside(operation(seen, 2)), error, ["b", 0, 0])
    assert trips == [["call 0", "heartbeat", "sample"], ["call 1", "heartbeat", "sample"]]
    assert seen == [["a"], error, ["b"]]


def test_consumer_sends_a_heartbeat_again_after_its_next_successful_operation(
    context: QueueContext, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(presence_module, "SECONDS", 0.0)
    presence = noting(context)
    run(presence.beside(operation([])), ["a"])
    with pytest.raises(ServerUnreachable):
        run(presence.beside(operation([])), ServerUnreachable("gone"))
    assert run(presence.beside(operation([])), ["b"]) == [["call 0"]]
    assert run(presence.beside(operation([])), ["c", 0, 0]) == [["call 0", "heartbeat", "sample"]]


def test_refused_heartbeat_does_not_fail_the_operation(context: QueueContext, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(presence_module, "SECONDS", 0.0)
    presence, seen = noting(context), list[Any]()
    run(presence.beside(operation(seen)), ["a"])
    run(presence.beside(operation(seen)), ["b", StaleReceipt("no"), 0])
    assert seen == [["a"], ["b"]]


def test_unrecorded_queue_gets_no_heartbeat():
    presence = noting(QueueContext("jobs", "delayq", 1, Settings()))
    for _ in range(3):
        assert run(presence.beside(operation([], 2)), ["a"], ["b"]) == [["call 0"], ["call 1"]]


def test_opening_the_queue_does_not_count_as_an_answer(monkeypatch: pytest.MonkeyPatch):
    opened = iter([False, True, True, True])
    answers = property(lambda _: next(opened), lambda *_: None)
    monkeypatch.setattr(QueueContext, "is_recorded", answers, raising=False)
    presence = noting(QueueContext("jobs", "delayq", 1, Settings()))
    trips = run(presence.beside(operation([], 2)), ["recorded"], ["b"])
    assert trips == [["call 0"], ["call 1"]]


def carried(calls: list[Command[Any]]) -> dict[str, int]:
    """The handler times that a heartbeat carries, by their fields in the queue's statistics."""
    (note,) = (each for each in calls if each.script and each.script.name in ("heartbeat", "deregister"))
    keys = int(note.args[0])
    fields = note.args[1 + keys + (3 if asked([note]) == ["heartbeat"] else 1) :]
    return dict(zip(map(str, fields[::2]), map(int, fields[1::2]), strict=True))


def note(presence: Presence, *replies: Any) -> dict[str, int]:
    """Send a heartbeat, answer it, and return the handler times that it carried."""
    steps = presence.beside(operation([]))
    handed = carried(next(steps))
    with pytest.raises(StopIteration):
        steps.send(["own", *replies])
    return handed


@pytest.mark.usefixtures("at_once")
def test_each_heartbeat_carries_the_handler_times_since_the_last(context: QueueContext):
    times = [3, 0, 1]
    presence = Presence(context, "me", lambda: b"{}", lambda: times)
    run(presence.beside(operation([])), ["a"])
    assert note(presence, 0, 0) == {"took:0": 3, "took:2": 1}
    assert note(presence, 0, 0) == {}
    times[1] += 5
    times[2] += 1
    assert note(presence, 0, 0) == {"took:1": 5, "took:2": 1}


@pytest.mark.usefixtures("at_once")
def test_handler_times_of_a_refused_heartbeat_go_with_the_next(context: QueueContext):
    presence = noting(context, 3)
    run(presence.beside(operation([])), ["a"])
    assert note(presence, StaleReceipt("no"), 0) == {"took:0": 3}
    assert note(presence, 0, StaleReceipt("no")) == {"took:0": 3}
    assert note(presence, 0, 0) == {}


@pytest.mark.usefixtures("at_once")
def test_leaving_consumer_sends_its_remaining_handler_times(context: QueueContext):
    times = [3]
    presence = Presence(context, "me", lambda: b"{}", lambda: times)
    run(presence.beside(operation([])), ["a"])
    note(presence, 0, 0)
    times[0] += 1
    steps = presence.leave()
    assert carried(next(steps)) == {"took:0": 1}
    with pytest.raises(StopIteration):
        steps.send([1])


def test_consumer_without_heartbeat_or_handler_times_need_not_leave(context: QueueContext):
    assert list(noting(context, 0, 0).leave()) == []


def test_consumer_without_a_heartbeat_still_sends_its_handler_times(context: QueueContext):
    (calls,) = [next(noting(context, 0, 2).leave())]
    assert (asked(calls), carried(calls)) == (["deregister"], {"took:1": 2})


@pytest.mark.usefixtures("at_once")
def test_each_shard_is_sampled(context: QueueContext):
    context.shards = [context.shards[0]] * 3
    presence = noting(context)
    trips = run(presence.beside(operation([], 2)), ["a"], ["b", 0, 0, 0, 0])
    assert trips == [["call 0"], ["call 1", "heartbeat", "sample", "sample", "sample"]]
