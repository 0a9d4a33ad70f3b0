"""The async face has the names of the sync one, with the same parameters and defaults, and awaits what does I/O."""

from __future__ import annotations

import inspect
from typing import Any

import delayq
from delayq import aio, doctor
from delayq.aio import dead as aio_dead
from delayq.aio import doctor as aio_doctor
from delayq.aio import events as aio_events
from delayq.aio import group as aio_group
from delayq.aio import schedules as aio_schedules
from delayq.dead import DeadLetters
from delayq.events import Ledger
from delayq.group import Group
from delayq.schedules import Schedules

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
NOT_AWAITED = {"__init__", "__repr__", "handler", "batch_handler", "cron", "tail"}  # they do no I/O
FOR_TESTING = {"served_by"}  # for delayq.testing, which runs queues of the sync face


def dotted(cls: type) -> str:
    return f"{cls.__module__}.{cls.__name__}"


def methods(cls: type) -> dict[str, Any]:
    """Return what a user may call, by name."""
    named = inspect.getmembers(cls, inspect.isfunction)
    special = {*NOT_AWAITED, *AWAITED_OTHERWISE, *AWAITED_OTHERWISE.values()}
    return {
        name: function
        for name, function in named
        if (not name.startswith("_") or name in special) and name not in FOR_TESTING
    }


def shape(function: Any) -> list[tuple[str, Any, Any]]:
    """Return names, kinds and defaults of the parameters."""
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


def test_faces_have_the_same_names_parameters_and_defaults():
    shapes = {
        dotted(awaited): (
            {AWAITED_OTHERWISE.get(name, name): shape(function) for name, function in methods(sync).items()},
            {name: shape(function) for name, function in methods(awaited).items()},
        )
        for sync, awaited in PAIRS
    }
    differing = {
        f"{cls}.{name}": (sync.get(name), awaited.get(name))
        for cls, (sync, awaited) in shapes.items()
        for name in {*sync, *awaited}
        if sync.get(name) != awaited.get(name)
    }
    assert differing == {}, "methods, with their parameters in either face"


def test_async_face_awaits_what_does_io_and_nothing_else():
    wrong = {}
    for _, awaited in PAIRS:
        own = {name: function for name, function in methods(awaited).items() if name in vars(awaited)}
        coroutines = {name for name, function in own.items() if inspect.iscoroutinefunction(function)}
        if coroutines != set(own) - NOT_AWAITED:
            wrong[dotted(awaited)] = coroutines ^ (set(own) - NOT_AWAITED)
    assert wrong == {}


def test_sync_face_awaits_nothing():
    found = [
        (sync, name) for sync, _ in PAIRS for name, each in methods(sync).items() if inspect.iscoroutinefunction(each)
    ]
    assert found == []


def test_faces_have_the_same_properties():
    def named(cls: type) -> set[str]:
        return {name for name, _ in inspect.getmembers(cls, lambda each: isinstance(each, property))}

    assert {dotted(sync): named(sync) ^ named(each) for sync, each in PAIRS if named(sync) != named(each)} == {}


def test_doctors_take_the_same():
    assert shape(doctor.examine) == shape(aio_doctor.examine)


def test_whatever_is_in_the_async_face_is_in_the_other():
    assert set(aio.__all__) <= set(delayq.__all__)
