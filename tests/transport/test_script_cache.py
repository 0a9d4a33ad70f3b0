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


def whole(cache: ScriptCache, calls: list[Command[Any]]) -> list[bool]:
    return [each.whole for each in cache.complete(calls)]


def test_text_of_a_script_is_sent_until_a_trip_was_answered():
    cache, trip = ScriptCache(), [call("pending_to_ready"), call(None), call("ready_to_unack")]
    assert whole(cache, trip) == whole(cache, trip) == [True, False, True]
    cache.note(cache.complete(trip), [0, [], []])
    assert whole(cache, trip) == [False, False, False]


def test_text_is_sent_once_per_trip():
    assert whole(ScriptCache(), [call("send"), call("send"), call("send", "elsewhere")]) == [True, False, True]


def test_lone_call_sends_its_text_only_if_it_is_refused():
    cache, trip = ScriptCache(), [call("send")]
    assert cache.complete(trip) is trip


def test_text_is_sent_to_each_server():
    cache, trip = ScriptCache(), [call("stats"), call("stats", "elsewhere")]
    cache.note(cache.complete(trip[:1] * 2), [0, 0])
    assert whole(cache, trip) == [False, True]


def test_text_is_sent_again_after_a_refusal():
    cache, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    cache.note(cache.complete(trip), [exceptions.NoPermissionError("no"), 0])
    assert whole(cache, trip) == [True, False]


def test_all_texts_are_sent_again_to_a_server_that_was_lost():
    cache, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    cache.note(cache.complete(trip), [0, 0])
    cache.forget()
    assert whole(cache, trip) == [True, True]


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
    cache, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    cache.note(cache.complete(trip), [0, 0])
    cache.note(cache.complete(trip), [0, error])
    assert whole(cache, trip) == [True, True]


def test_other_errors_do_not_send_the_texts_again():
    cache, trip = ScriptCache(), [call("stats"), call("plan_sleep")]
    cache.note(cache.complete(trip), [0, 0])
    cache.note(cache.complete(trip), [0, exceptions.ResponseError("WRONGTYPE")])
    assert whole(cache, trip) == [False, False]


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
