"""Which calls of a trip bring the text of their script."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions

from delayq.protocol.command import Command, identity, script
from delayq.transport.script_cache import ScriptCache, missing_scripts


def call(name: str | None, key: str = "k", repeats: bool = True) -> Command[Any]:
    return Command(key, (1, key), identity, script(name) if name else None, repeats=repeats)


def whole(told: ScriptCache, calls: list[Command[Any]]) -> list[bool]:
    return [each.whole for each in told.complete(calls)]


def test_script_brings_its_text_until_a_trip_was_answered():
    told, trip = ScriptCache(), [call("pending_to_ready"), call(None), call("ready_to_unack")]
    assert whole(told, trip) == whole(told, trip) == [True, False, True]
    told.note(told.complete(trip), [0, [], []])
    assert whole(told, trip) == [False, False, False]


def test_text_goes_once_in_a_trip():
    assert whole(ScriptCache(), [call("send"), call("send"), call("send", "elsewhere")]) == [True, False, True]


def test_call_that_is_alone_waits_to_be_refused():
    told, trip = ScriptCache(), [call("send")]
    assert told.complete(trip) is trip


def test_server_of_another_key_is_told_too():
    told, trip = ScriptCache(), [call("stats"), call("stats", "elsewhere")]
    told.note(told.complete(trip[:1] * 2), [0, 0])
    assert whole(told, trip) == [False, True]


def test_what_was_refused_is_told_again():
    told, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    told.note(told.complete(trip), [exceptions.NoPermissionError("no"), 0])
    assert whole(told, trip) == [True, False]


def test_all_is_told_again_to_a_server_that_was_lost():
    told, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    told.note(told.complete(trip), [0, 0])
    told.forget()
    assert whole(told, trip) == [True, True]


@pytest.mark.parametrize(
    "error",
    [
        exceptions.NoScriptError("No matching script"),
        exceptions.ReadOnlyError("You can't write against a read only replica"),
        exceptions.ClusterDownError("no node has the slot"),
        exceptions.ConnectionError("Connection closed by server."),
        exceptions.TimeoutError("Timeout reading from socket"),
    ],
    ids=repr,
)
def test_all_is_told_again_when_one_call_was_answered_as_by_a_server_that_may_know_nothing(error: Exception):
    told, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    told.note(told.complete(trip), [0, 0])
    told.note(told.complete(trip), [0, error])
    assert whole(told, trip) == [True, True]


def test_what_a_trip_was_refused_for_itself_is_no_reason_to_tell_anew():
    told, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    told.note(told.complete(trip), [0, 0])
    told.note(told.complete(trip), [0, exceptions.ResponseError("WRONGTYPE")])
    assert whole(told, trip) == [False, False]


NO_SCRIPT = exceptions.NoScriptError("No matching script")


@pytest.mark.parametrize(
    ("results", "again"),
    [
        ([[], 0, 0, [], 1, []], []),
        ([[], NO_SCRIPT, NO_SCRIPT, [], 1, []], [1, 2, 3, 5]),
        ([[], NO_SCRIPT, 0, [], 1, []], [1, 3, 5]),
        ([[], 0, NO_SCRIPT, [], 1, []], [2, 3, 5]),
    ],
    ids=str,
)
def test_what_is_plain_and_repeats_is_sent_again_behind_the_first_call_that_was_refused(
    results: list[Any], again: list[int]
):
    trip = [call(None), call("pending_to_ready"), call("ready_to_unack", repeats=False)]
    assert missing_scripts([*trip, call(None), call(None, repeats=False), call(None)], results) == again
