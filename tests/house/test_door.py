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
    "delayq.cli.check": {
        "delayq.operations.bulk.check.Checked": "with check",
        "delayq.operations.bulk.check.check_messages": "judges messages by a program's handlers, which few programs do",
    },
    "delayq.cli.connection": {
        "delayq.transport.embedded.binaries.read_version": "a command that only reads must not create a store",
    },
    "delayq.cli.consume.command": {
        "delayq.runtime.recycling.Recycling": "consumer processes are replaced as those of process pools are",
    },
    "delayq.cli.consume.program": {
        "delayq.runtime.group_watcher.GroupWatcher": "programs of --exec end as those of process pools do",
    },
    "delayq.cli.consume.renewal": {
        "delayq.runtime.recycling.Recycling": "consumer processes are replaced as those of process pools are",
        "delayq.runtime.recycling.resident_bytes": "the same",
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
    "delayq.cli.protocol": {
        "delayq.protocol.script.script": "prints the text of a script for other languages",
    },
    "delayq.cli.queue": {
        "delayq.operations.manage": "removes a queue, which programs do not do",
    },
    "delayq.cli.show": {
        "delayq.operations.explain": "the estimate without the sentence that it is part of",
        "delayq.operations.results": "the result of this very message, if the login may read results",
        "delayq.operations.paging.behind": "a cursor for a time; pages of the face begin with another page's cursor",
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
    "delayq.django.backend": {
        "delayq.operations.encode.encode_message": "refuses within a transaction what could not be sent after it",
    },
    "delayq.outbox.rows": {
        "delayq.operations.outbox": "encodes without a server, reserves other ids, and asks what a server has on disk",
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
        "delayq.runtime.handler_thread.awaited": "calls plain and async handlers as a consumer does",
        "delayq.transport.trampoline": "runs the calls that the kit yields for either API",
    },
    "delayq.testing.served_by": {
        "delayq.operations.message_store.RedisStore": "a queue in memory keeps no messages in a lake",
    },
    "delayq.spark.jobs.dead_letter_edits": {
        "delayq.operations.bulk.edit.SeenLetter": "with requeue_seen",
        "delayq.operations.bulk.edit.requeue_seen": "requeues 100 letters as they were seen in shared round trips",
    },
    "delayq.spark.jobs.defer": {
        "delayq.operations.encode.encode_message": "encodes rows in tasks, which have no server",
        "delayq.operations.queue_context.Settings": "what the tasks get to encode with",
    },
    "delayq.spark.jobs.drain": {
        "delayq.operations.backup": "removes exactly what was seen, which no program does",
        "delayq.operations.partitions": "reads parts of a queue side by side",
    },
    "delayq.spark.jobs.preview": {
        "delayq.operations.encode.encode_message": "encodes rows in tasks, which have no server",
    },
    "delayq.spark.jobs.restore": {
        "delayq.operations.backup": "puts back exactly what was seen, which no program does",
        "delayq.operations.partitions": "reads parts of a queue side by side",
    },
    "delayq.spark.reading.batch_reader": {
        "delayq.operations.topics.partitions": "reads parts of a stream side by side",
        "delayq.operations.topics.publish": "appends what is due before the offsets are read",
    },
    "delayq.spark.reading.lag": {
        "delayq.operations.topics.partitions": "looks at a stream without appending what is due",
    },
    "delayq.spark.reading.messages": {
        "delayq.operations.partitions": "reads parts of a queue side by side",
    },
    "delayq.spark.reading.single_partition": {
        "delayq.operations.partitions.shard_count": "tells a queue that is not there from an empty one",
    },
    "delayq.spark.reading.stream_partitions": {
        "delayq.operations.topics.partitions": "reads parts of a stream side by side",
    },
    "delayq.spark.reading.streams": {
        "delayq.operations.topics.partitions": "reads parts of a stream side by side",
    },
    "delayq.spark.redis_options": {
        "delayq.operations.queue_context.server_ms": "the server's clock decides what is due",
        "delayq.transport.patience.make_patient": "jobs wait for a server that is away",
    },
    "delayq.spark.writing.sink": {
        "delayq.operations.encode.EncodedMessage": "what a task sends",
        "delayq.operations.encode.encode_message": "encodes rows in tasks",
        "delayq.operations.encode.stored_retries": "reads the queue's retries once for all tasks",
        "delayq.operations.send.send_new": "says which messages are new without reading those that exist",
    },
    "delayq.web.api.messages": {
        "delayq.operations.results": "the result of this very message, if the login may read results",
    },
    "delayq.web.consumer_rows": {
        "delayq.operations.inspect": "reads the ends of many leases in one round trip",
    },
    "delayq.web.filters": {
        "delayq.operations.bulk.search": "a search that stops in time, with values hidden",
    },
    "delayq.web.group_changes": {
        "delayq.operations.topics.dead_letters": "requeues or deletes all in steps, so that it can be stopped",
        "delayq.operations.topics.group_admin": "says what a move would do",
        "delayq.operations.topics.read": "the server's clock",
    },
    "delayq.web.groups": {
        "delayq.operations.topics.reclaim.Reclaimed": "with reclaim",
        "delayq.operations.topics.reclaim.reclaim": "says also how many ghosts were cleared",
    },
    "delayq.web.job_work": {
        "delayq.operations.garbage": "collects in steps, so that it can be stopped",
        "delayq.operations.bulk.actions": "acts in steps, so that it can be stopped",
        "delayq.operations.bulk.purge": "purges in steps, so that it can be stopped",
        "delayq.operations.bulk.redrive.Redrive": "redrives in steps, so that it can be stopped",
        "delayq.operations.bulk.sweep.Sweep": "acts on all matching messages in steps",
    },
    "delayq.web.ledger_search": {
        "delayq.operations.explain": "searches the ledger in steps, with values hidden",
    },
    "delayq.web.pages.add_schedule": {
        "delayq.operations.schedules": "checks a draft without storing it",
    },
    "delayq.web.pages.change_topics": {
        "delayq.operations.topics.read": "the server's clock",
    },
    "delayq.web.pages.configure": {
        "delayq.operations.configure.check": "checks a change without storing it",
    },
    "delayq.web.pages.message": {
        "delayq.operations.results": "the result of this very message, if the login may read results",
    },
    "delayq.web.pages.queue": {
        "delayq.operations.limit_use.MOST_KEYS": "with limit_use",
        "delayq.operations.limit_use.limit_use": "figures of one page alone",
    },
    "delayq.web.pages.topic": {
        "delayq.operations.topics.read": "a page before a place, over all shards",
    },
    "delayq.web.record_changes": {
        "delayq.operations.topics.read": "the server's clock",
        "delayq.operations.topics.trim": "says what a trim would drop; trims in steps, so that it can be stopped",
    },
    "delayq.web.schedule_rows": {
        "delayq.operations.inspect": "asks with the few rights of a scheduler whether the queue is held back",
    },
    "delayq.web.tab_counts": {
        "delayq.operations.schedules.count": "counts without reading",
    },
}
"""What a module imports from behind the door, and why."""

ROOMS = (
    "delayq.cli",
    "delayq.django",
    "delayq.web",
    "delayq.spark",
    "delayq.metrics",
    "delayq.outbox",
    "delayq.testing",
)
MOST = 60
"""How many import statements of all rooms together may go around the door."""

INSIDE = {"opened", "reopened"}
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


@pytest.mark.parametrize("room", ROOMS)
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


def test_few_imports_go_around_the_door():
    statements = [(module, names) for room in ROOMS for module in of_room(room) for names in around(module)]
    assert len(statements) <= MOST, REMEDY.format(module="another module", name="one more")


@pytest.mark.parametrize("room", ROOMS)
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
