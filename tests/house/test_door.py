"""The rooms above the public face go through its door; what they import from behind it is listed here, with a reason.

A new import around the door needs a method of the face, a value in the model, or a row in `EXCEPTIONS`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.harness.tree import modules, syntax

BEHIND = ("delayq.operations", "delayq.protocol", "delayq.transport", "delayq.runtime")

EXCEPTIONS: dict[str, dict[str, str]] = {
    "delayq.cli.app": {
        "delayq.transport.server_check.translate": "says what an error of redis-py means that bench's own calls raise",
    },
    "delayq.cli.bench": {
        "delayq.operations.registry": "removes the name of a queue whose keys it has deleted",
    },
    "delayq.cli.connection": {
        "delayq.transport.embedded.binaries.read_version": "a command that only reads must not create a store",
    },
    "delayq.cli.consume.program": {
        "delayq.runtime.group_watcher.GroupWatcher": "programs of --exec end as those of process pools do",
    },
    "delayq.cli.convert": {
        "delayq.transport.embedded.convert.convert_store": "changes the files of a store that no queue can open",
    },
    "delayq.cli.cron": {
        "delayq.operations.inspect": "is_held_back leaves out what a scheduler may not read",
    },
    "delayq.cli.cron_file": {
        "delayq.operations.schedules": "compares schedules before it stores them, and finds those that are unreadable",
    },
    "delayq.cli.queue": {
        "delayq.operations.manage": "removes a queue, which programs do not do",
    },
    "delayq.cli.show": {
        "delayq.operations.paging.behind": "a cursor for a time; pages of the face begin with another page's cursor",
    },
    "delayq.cli.stopping": {
        "delayq.runtime.signals": "commands end on the signals that end consumers",
    },
    "delayq.cli.top.command": {
        "delayq.operations.manage": "toggle pauses or resumes a queue only as it was seen",
    },
    "delayq.cli.topic.counts": {
        "delayq.operations.topics.explain": "counts delayed records without appending those that are due",
    },
    "delayq.cli.topic.groups": {
        "delayq.operations.topics.reclaim": "says also what a takeover has buried and cleared",
    },
    "delayq.testing.drain": {
        "delayq.operations.idle": "asks when the next message is due, to move the clock there",
        "delayq.operations.schedules": "stores the schedules that have functions here, as a consumer does",
        "delayq.runtime.hooks.tell_dead": "calls the hooks for a dead letter, as a consumer does",
    },
    "delayq.testing.face": {
        "delayq.transport.trampoline": "runs the calls that the kit yields for either API",
    },
    "delayq.testing.face_async": {
        "delayq.runtime.routing_async.awaited": "calls plain and async handlers as a consumer does",
        "delayq.transport.trampoline": "runs the calls that the kit yields for either API",
    },
    "delayq.testing.served_by": {
        "delayq.operations.message_store.RedisStore": "a queue in memory keeps no messages in a lake",
    },
}
"""What a module imports from behind the door, and why."""

LISTED = ("delayq.cli", "delayq.testing")
"""The rooms whose exceptions are in the table."""

MOST = {"delayq.web": 18, "delayq.spark": 14, "delayq.metrics": 0}
"""How many import statements of the other rooms go around the door, until the table has their rows."""

INSIDE = {"delayq.protocol.operation.round_trip", "delayq.protocol.operation.run_one", "opened", "reopened"}
"""Parts of operations: a room that needs them lacks an operation."""

REMEDY = (
    "{module} imports {name} around the door: call a method of Queue, Topic, Group …, or add one if users would call "
    "it; move a limit, a kind or a parser to delayq.model; put commands into an operation for queue.execute(…), and "
    "only then add the import with its reason to EXCEPTIONS of tests/house/test_door.py"
)


def of_room(room: str) -> list[str]:
    return [module for module in modules() if f"{module}.".startswith(f"{room}.")]


def around(module: str) -> Iterator[list[str]]:
    """The names that each statement of a module imports from behind the door."""
    package = module if modules()[module].stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(syntax(module)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*parents, *([node.module] if node.module else [])])
            names = [f"{source}.{each.name}" for each in node.names]
        if found := [name for name in names if f"{name}.".startswith(tuple(f"{each}." for each in BEHIND))]:
            yield found


@pytest.mark.parametrize("room", LISTED)
def test_import_around_the_door_has_a_reason(room: str):
    new = [
        REMEDY.format(module=module, name=name)
        for module in of_room(room)
        for names in around(module)
        for name in names
        if name not in EXCEPTIONS.get(module, {})
    ]
    assert new == []


def test_exceptions_are_needed():
    unused = {
        module: names
        for module, known in EXCEPTIONS.items()
        if (names := known.keys() - {name for each in around(module) for name in each})
    }
    assert unused == {}, "modules, and the names that they no longer import: remove these rows from EXCEPTIONS"


@pytest.mark.parametrize("room", MOST)
def test_no_more_imports_go_around_the_door(room: str):
    statements = [(module, names) for module in of_room(room) for names in around(module)]
    assert len(statements) <= MOST[room], f"{REMEDY.format(module=room, name='more than before')}: {statements}"


@pytest.mark.parametrize("room", LISTED)
def test_room_above_the_face_uses_whole_operations(room: str):
    used = {
        module: names
        for module in of_room(room)
        if (
            names := INSIDE
            & {
                *(name for each in around(module) for name in each),
                *(node.attr for node in ast.walk(syntax(module)) if isinstance(node, ast.Attribute)),
            }
        )
    }
    assert used == {}, "modules that run parts of operations: give them an operation for queue.execute(…)"
