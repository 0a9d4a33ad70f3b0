"""Which calls of a trip bring the text of their script."""

from __future__ import annotations

from typing import Any

from redis.exceptions import NoPermissionError

from delayq.calls import Call, Told, as_is, script


def call(name: str | None, key: str = "k") -> Call[Any]:
    return Call(key, (1, key), as_is, script(name) if name else None)


def whole(told: Told, calls: list[Call[Any]]) -> list[bool]:
    return [each.whole for each in told.complete(calls)]


def test_script_brings_its_text_until_a_trip_was_answered():
    told, trip = Told(), [call("pending_to_ready"), call(None), call("ready_to_unack")]
    assert whole(told, trip) == whole(told, trip) == [True, False, True]
    told.note(told.complete(trip), [0, [], []])
    assert whole(told, trip) == [False, False, False]


def test_text_goes_once_in_a_trip():
    assert whole(Told(), [call("send"), call("send"), call("send", "elsewhere")]) == [True, False, True]


def test_call_that_is_alone_waits_to_be_refused():
    told, trip = Told(), [call("send")]
    assert told.complete(trip) is trip


def test_server_of_another_key_is_told_too():
    told, trip = Told(), [call("stats"), call("stats", "elsewhere")]
    told.note(told.complete(trip[:1] * 2), [0, 0])
    assert whole(told, trip) == [False, True]


def test_what_was_refused_is_told_again():
    told, trip = Told(), [call("stats"), call("rest")]
    told.note(told.complete(trip), [NoPermissionError("no"), 0])
    assert whole(told, trip) == [True, False]


def test_all_is_told_again_to_a_server_that_was_lost():
    told, trip = Told(), [call("stats"), call("rest")]
    told.note(told.complete(trip), [0, 0])
    told.forget()
    assert whole(told, trip) == [True, True]
