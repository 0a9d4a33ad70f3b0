"""When a consumer notes that it lives: beside an operation that does not notice."""

from __future__ import annotations

from typing import Any

import pytest

from delayq.calls import Call, Steps
from delayq.errors import ServerUnreachable, StaleReceipt
from delayq.operations import appearing
from delayq.operations.appearing import Presence
from delayq.operations.core import Core, Settings


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Core:
    """One of a queue that is recorded."""
    monkeypatch.setattr(Core, "is_open", True)
    return Core("jobs", "delayq", 1, Settings())


def call(name: str) -> Call[str]:
    return Call("k", (name,), str)


def operation(seen: list[Any], trips: int = 1) -> Steps[str]:
    """Make round trips of one call; what they are answered is seen."""
    for number in range(trips):
        try:
            seen.append((yield [call(f"call {number}")]))
        except LookupError as error:
            seen.append(error)
    return "done"


def asked(calls: list[Call[Any]]) -> list[str]:
    return [each.script.name if each.script else str(each.args[0]) for each in calls]


def run(steps: Steps[str], *replies: Any) -> list[list[str]]:
    """Answer round trips, errors being thrown; return what each has asked. It has to end with the last one."""
    trips = [asked(next(steps))]
    for reply in replies:
        try:
            calls = steps.throw(reply) if isinstance(reply, Exception) else steps.send(reply)
        except StopIteration as stop:
            return trips if stop.value == "done" else pytest.fail(str(stop.value))
        trips.append(asked(calls))
    pytest.fail("it goes on")


def test_consumer_that_has_been_served_appears_and_then_not_for_a_while(core: Core):
    presence, seen = Presence(core), list[Any]()
    assert run(presence.beside(operation(seen), "me"), ["a"]) == [["call 0"]]
    assert run(presence.beside(operation(seen), "me"), ["b", 0]) == [["call 0", "appear"]]
    assert run(presence.beside(operation(seen), "me"), ["c"]) == [["call 0"]]
    assert seen == [["a"], ["b"], ["c"]]


def test_first_round_trip_that_follows_one_that_was_answered_takes_the_note(core: Core):
    seen = list[Any]()
    trips = run(Presence(core).beside(operation(seen, 3), "me"), ["a"], ["b", 0], ["c"])
    assert trips == [["call 0"], ["call 1", "appear"], ["call 2"]]
    assert seen == [["a"], ["b"], ["c"]]


def test_who_is_refused_does_not_appear(core: Core):
    trips = run(Presence(core).beside(operation([], 2), "me"), [StaleReceipt("no")], ["b"])
    assert trips == [["call 0"], ["call 1"]]


def test_operation_is_thrown_what_its_round_trip_was(core: Core, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(appearing, "SECONDS", 0.0)
    presence, seen, error = Presence(core), list[Any](), LookupError("lost")
    run(presence.beside(operation(seen), "me"), ["a"])
    trips = run(presence.beside(operation(seen, 2), "me"), error, ["b", 0])
    assert trips == [["call 0", "appear"], ["call 1", "appear"]]
    assert seen == [["a"], error, ["b"]]


def test_consumer_whose_operation_fails_appears_again_when_one_has_been_answered(
    core: Core, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(appearing, "SECONDS", 0.0)
    presence = Presence(core)
    run(presence.beside(operation([]), "me"), ["a"])
    with pytest.raises(ServerUnreachable):
        run(presence.beside(operation([]), "me"), ServerUnreachable("gone"))
    assert run(presence.beside(operation([]), "me"), ["b"]) == [["call 0"]]
    assert run(presence.beside(operation([]), "me"), ["c", 0]) == [["call 0", "appear"]]


def test_refused_note_is_no_error_of_the_operation(core: Core, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(appearing, "SECONDS", 0.0)
    presence, seen = Presence(core), list[Any]()
    run(presence.beside(operation(seen), "me"), ["a"])
    run(presence.beside(operation(seen), "me"), ["b", StaleReceipt("no")])
    assert seen == [["a"], ["b"]]


def test_queue_that_is_not_recorded_is_left_without_a_trace():
    presence = Presence(Core("jobs", "delayq", 1, Settings()))
    for _ in range(3):
        assert run(presence.beside(operation([], 2), "me"), ["a"], ["b"]) == [["call 0"], ["call 1"]]


def test_to_be_told_that_the_queue_is_recorded_is_no_service(monkeypatch: pytest.MonkeyPatch):
    opened = iter([False, True, True, True])
    monkeypatch.setattr(Core, "is_open", property(lambda _: next(opened)))
    presence = Presence(Core("jobs", "delayq", 1, Settings()))
    trips = run(presence.beside(operation([], 2), "me"), ["recorded"], ["b"])
    assert trips == [["call 0"], ["call 1"]]
