"""Headers of delayq: refused by each command that takes headers, and harmless where they are shown."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
import redis
from delayq.cli import main

from delayq import Queue
from tests.cli.conftest import Invoke
from tests.harness.foreign_headers import CORPUS, NAME, PLAN, SLOT, plan
from tests.harness.foreign_headers import write as write_foreign
from tests.harness.hostile import commands_to_a_terminal
from tests.harness.lines import Write

COMMANDS: dict[str, list[str]] = {
    "send": ["emails", "x"],
    "topic publish": ["orders", "x"],
    "cron add": ["emails", "tick", "* * * * *"],
    "dead edit": ["emails", "dead"],
    "dead requeue": ["emails", "--all"],
}
LINE = {"payload": 1, "headers": {"delayq-slot": 1}}


def snapshot(client: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: client.dump(key) for key in client.scan_iter()}


def commands(group: click.Group, words: str = "") -> dict[str, click.Command]:
    """Return all commands, by their words."""
    found: dict[str, click.Command] = {}
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        own = f"{words} {name}".strip()
        found |= commands(command, own) if isinstance(command, click.Group) else {own: command}
    return found


def test_commands_that_take_headers_are_known():
    assert {
        name for name, command in commands(main).items() if any("--header" in each.opts for each in command.params)
    } == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_command_refuses_headers_of_delayq_and_changes_nothing(
    invoke: Invoke, queue: Queue, redis_client: redis.Redis, command: str
):
    queue.send("x", id="dead")
    queue.receive()[0].reject("broken")
    before = snapshot(redis_client)
    for name in (SLOT, "DELAYQ-x"):
        done = invoke(*command.split(), *COMMANDS[command], "--header", f"{name}=1")
        assert done.exit_code == 2
        assert "Invalid value for '--header' / '-H'" in done.stderr
        assert f"header {name!r} is reserved" in done.stderr.replace("\n", " ")
    assert snapshot(redis_client) == before


@pytest.mark.parametrize("command", ["send emails", "topic publish orders"])
def test_line_with_headers_of_delayq_is_refused_by_its_number(
    invoke: Invoke, write: Write, redis_client: redis.Redis, command: str
):
    path = write([LINE])
    done = invoke(*command.split(), "--file", str(path))
    assert done.exit_code == 2
    assert "line 1: header 'delayq-slot' is reserved" in done.stderr
    assert list(redis_client.scan_iter("*msg:*")) == []


def test_file_of_schedules_with_headers_of_delayq_is_refused(invoke: Invoke, tmp_path: Path, queue: Queue):
    path = tmp_path / "jobs.toml"
    path.write_text('[tick]\nwhen = "* * * * *"\nheaders = { delayq-slot = 1 }\n')
    done = invoke("cron", "load", "emails", str(path))
    assert done.exit_code == 2
    assert "[tick]: header 'delayq-slot' is reserved" in done.stderr.replace("\n", " ")
    assert queue.schedules.list() == []


def test_headers_that_another_client_has_written_can_be_looked_at(invoke: Invoke, queue: Queue):
    for name in ("bob", "alice"):
        queue.schedules.add(name, "0 0 1 1 *")
    for each in CORPUS:
        write_foreign(queue, *each, due="+60000")
    ids = {each.id for each in CORPUS}
    peek = ["peek", "emails", "--limit", "1000"]
    calls = [peek, [*peek, "--json"], ["doctor", "emails"], ["cron", "list", "emails"], ["cron", "next", "emails"]]
    calls += [[command, "emails", "--", each] for each in sorted(ids) for command in ("show", "why")]
    for words in calls:
        done = invoke(*words)
        assert done.exception is None or isinstance(done.exception, SystemExit)
        is_refused = done.exit_code == 2 and "message id" in done.stderr  # longer than a user's, or not printable
        assert done.exit_code == 0 or is_refused, (words, done.output)
        assert not commands_to_a_terminal(done.stdout)
        assert "delayq-slot" not in re.sub(r"delayq-slot.{0,12}?@", "", done.stdout.lower())  # an id may be called so


def test_show_has_the_schedule_and_slot_of_an_occurrence(invoke: Invoke, queue: Queue):
    write_foreign(queue, "bob@1700000000000", {NAME: "bob", SLOT: 1_700_000_000_000, PLAN: plan(), "a": 1}, "+60000")
    shown = dict(line.split(maxsplit=1) for line in invoke("show", "emails", "bob@1700000000000").stdout.splitlines())
    assert shown["schedule"] == "bob"
    assert "2023-11-14 22:13:20.000" in shown["slot"]
    known: dict[str, Any] = json.loads(invoke("show", "emails", "bob@1700000000000", "--json").stdout)
    assert (known["schedule"], known["slot"], known["headers"]) == ("bob", "2023-11-14T22:13:20Z", {"a": 1})


def test_program_gets_the_schedule_and_slot_but_no_headers_of_delayq(
    invoke: Invoke, queue: Queue, capfd: pytest.CaptureFixture[str]
):
    write_foreign(queue, "bob@1700000000000", {NAME: "bob", SLOT: 1_700_000_000_000, PLAN: plan(), "a": 1})
    queue.send("plain", id="later", delay=0.001)
    env: dict[str, str | None] = {"DELAYQ_SLOT": "of an outer message", "DELAYQ_SCHEDULE": "outer"}
    program = "env | grep -E 'DELAYQ_(HEADER|SCHEDULE|SLOT)' | sort | tr '\\n' ' '; echo"
    assert invoke("consume", "emails", "--exec", program, "--burst", "--concurrency", "1", env=env).exit_code == 0
    found = [line.split() for line in capfd.readouterr().out.splitlines() if line.startswith("DELAYQ_")]
    assert sorted(found) == [
        ["DELAYQ_HEADER_A=1", "DELAYQ_SCHEDULE=bob", "DELAYQ_SLOT=2023-11-14T22:13:20.000+00:00"],
        ["DELAYQ_SCHEDULE=", "DELAYQ_SLOT="],
    ]
