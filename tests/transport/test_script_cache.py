"""Which calls of a round trip carry the text of their script."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions

from delayq.protocol.command import Command, identity
from delayq.protocol.script import script
from delayq.transport.script_cache import ScriptCache, missing_scripts


def call(name: str | None, key: str = "k", repeats: bool = True) -> Command[Any]:
    return Command(key, (1, key), identity, script(name) if name else None, repeats=repeats)


def whole(told: ScriptCache, calls: list[Command[Any]]) -> list[bool]:
    return [each.whole for each in told.complete(calls)]


def test_text_of_a_script_is_sent_until_a_trip_was_answered():
    told, trip = ScriptCache(), [call("pending_to_ready"), call(None), call("ready_to_unack")]
    assert whole(told, trip) == whole(told, trip) == [True, False, True]
    told.note(told.complete(trip), [0, [], []])
    assert whole(told, trip) == [False, False, False]


def test_text_is_sent_once_per_trip():
    assert whole(ScriptCache(), [call("send"), call("send"), call("send", "elsewhere")]) == [True, False, True]


def test_lone_call_sends_its_text_only_if_it_is_refused():
    told, trip = ScriptCache(), [call("send")]
    assert told.complete(trip) is trip


def test_text_is_sent_to_each_server():
    told, trip = ScriptCache(), [call("stats"), call("stats", "elsewhere")]
    told.note(told.complete(trip[:1] * 2), [0, 0])
    assert whole(told, trip) == [False, True]


def test_text_is_sent_again_after_a_refusal():
    told, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    told.note(told.complete(trip), [exceptions.NoPermissionError("no"), 0])
    assert whole(told, trip) == [True, False]


def test_all_texts_are_sent_again_to_a_server_that_was_lost():
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
def test_all_texts_are_sent_again_after_an_error_that_suggests_an_empty_script_cache(error: Exception):
    told, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    told.note(told.complete(trip), [0, 0])
    told.note(told.complete(trip), [0, error])
    assert whole(told, trip) == [True, True]


def test_other_errors_do_not_send_the_texts_again():
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
def test_plain_repeatable_calls_are_sent_again_after_the_first_refused_one(results: list[Any], again: list[int]):
    trip = [call(None), call("pending_to_ready"), call("ready_to_unack", repeats=False)]
    assert missing_scripts([*trip, call(None), call(None, repeats=False), call(None)], results) == again
