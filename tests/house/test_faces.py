"""The sync API is generated from the async one, which awaits everything that does I/O."""

from __future__ import annotations

import inspect
from typing import Any

import delayq
from delayq import aio
from delayq.aio import dead_letters as aio_dead
from delayq.aio import ledger as aio_events
from delayq.aio import schedules as aio_schedules
from delayq.aio import topic_group as aio_group
from delayq.dead_letters import DeadLetters
from delayq.ledger import Ledger
from delayq.schedules import Schedules
from delayq.topic_group import Group
from tools import faces

PAIRS: list[tuple[Any, Any]] = [
    (delayq.Queue, aio.Queue),
    (delayq.Message, aio.Message),
    (delayq.Consumer, aio.Consumer),
    (DeadLetters, aio_dead.DeadLetters),
    (Schedules, aio_schedules.Schedules),
    (delayq.Topic, aio.Topic),
    (Ledger, aio_events.Ledger),
    (Group, aio_group.Group),
    (delayq.TopicConsumer, aio.TopicConsumer),
]
AWAITED_OTHERWISE = {"__enter__": "__aenter__", "__exit__": "__aexit__"}
NOT_AWAITED = {"__init__", "__repr__", "handler", "batch_handler", "cron", "task", "tail", "wish"}  # they do no I/O


def dotted(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def methods(cls: type) -> dict[str, Any]:
    """Return what a user can call, by name."""
    named = inspect.getmembers(cls, inspect.isfunction)
    special = {*NOT_AWAITED, *AWAITED_OTHERWISE, *AWAITED_OTHERWISE.values()}
    return {name: function for name, function in named if not name.startswith("_") or name in special}


def test_sync_api_is_up_to_date_with_the_async_one():
    stale = [name for name in faces.MADE if faces.target(name).read_text() != faces.made(name)]
    assert stale == [], "regenerate these modules: `make faces`"


def test_paragraph_with_a_replaced_sentence_is_wrapped_again():
    paragraph = "It survives exceptions of handlers and restarts of the server. Leases are renewed while handlers run."
    assert f"\n    {paragraph}\n" in faces.made("aio/consumer")


def test_every_module_of_the_async_api_has_a_sync_one():
    source = {f"aio/{path.stem}" for path in (faces.PACKAGE / "aio").glob("*.py")} - {"aio/__init__"}
    assert source == {name for name in faces.MADE if name.startswith("aio/")}


def test_async_api_awaits_exactly_what_does_io():
    wrong = {}
    for _, awaited in PAIRS:
        own = {name: function for name, function in methods(awaited).items() if name in vars(awaited)}
        coroutines = {name for name, function in own.items() if inspect.iscoroutinefunction(function)}
        if coroutines != set(own) - NOT_AWAITED:
            wrong[dotted(awaited)] = coroutines ^ (set(own) - NOT_AWAITED)
    assert wrong == {}


def test_sync_api_awaits_nothing():
    found = [
        (sync, name) for sync, _ in PAIRS for name, each in methods(sync).items() if inspect.iscoroutinefunction(each)
    ]
    assert found == []


def test_everything_in_the_async_api_is_in_the_sync_one():
    assert set(aio.__all__) <= set(delayq.__all__)
