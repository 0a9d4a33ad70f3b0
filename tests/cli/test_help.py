"""Every command says what it does, and its help ends with an example that runs as printed."""

from __future__ import annotations

import importlib
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest
from delayq.cli import main, pipeline
from delayq.cli.pipeline import JOBS

import delayq as library
from delayq import Queue
from delayq.model.extras import install
from tests.cli.conftest import SECONDS, Invoke, Run
from tests.harness.servers import RedisServer

PIPELINE = ("schedule", "defer", "hydrate", "archive", "lag", "report", "drain", "restore", "redrive")
PLANNED = {
    *(
        "demo",
        "consume",
        "send",
        "stats",
        "peek",
        "show",
        "cancel",
        "reschedule",
        "now",
        "pause",
        "resume",
        "purge",
        "dead",
    ),
    "result",
    "check",
    "protocol",
    "relay",
    *("configure", "why", "plan", "dashboard", "exporter", "queue", "queue list", "queue remove", "consumers"),
    *(
        "dead list",
        "dead causes",
        "dead show",
        "dead bury",
        "dead requeue",
        "dead edit",
        "dead purge",
        "doctor",
        "bench",
        "top",
    ),
    "convert",
    *(
        "cron",
        "cron add",
        "cron list",
        "cron next",
        "cron run",
        "cron pause",
        "cron resume",
        "cron remove",
        "cron load",
    ),
    *("init", "completion", "lake", "lake hydrate", "lake repair"),
    "topic",
    *(f"topic {name}" for name in ("list", "publish", "cancel", "read", "tail", "groups", "unacked", "claim", "trim")),
    *("topic shrink", "topic delete", "topic destroy", "topic group"),
    *(f"topic group {name}" for name in ("create", "move", "ack", "remove-consumer", "dead", "requeue", "delete")),
    *("pipeline", *(f"pipeline {name}" for name in PIPELINE)),
}
SERVERLESS = {"init", "completion", "protocol", "pipeline defer", "lake repair", "plan", "convert"}
RUN_ELSEWHERE = {"demo", "bench", ""}  # in test_demo.py and test_bench.py
RUN_ELSEWHERE |= {"result"}  # in test_result.py, beside a consumer
RUN_ELSEWHERE |= {"convert"}  # in test_convert.py
RUN_ELSEWHERE |= {"dashboard"}  # in tests/web
RUN_ELSEWHERE |= {"pipeline", *(f"pipeline {name}" for name in PIPELINE)}  # in tests/spark


def commands(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    yield " ".join(path), group
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


COMMANDS = dict(commands())


def example(help_text: str) -> str:
    """The example, which must end the help."""
    _, mark, lines = help_text.partition("\n  Example:\n")
    assert mark
    assert all(line.startswith("    ") for line in lines.splitlines())
    return "\n".join(line.strip() for line in lines.splitlines())


def test_commands_are_those_that_were_planned():
    assert set(COMMANDS) == PLANNED | {""}


def test_command_and_its_options_are_documented():
    offenders = []
    for path, command in COMMANDS.items():
        explained = (command.help or "").split("\n\n")[0].rstrip().endswith(".")
        listed = not path or 0 < len(command.short_help or "") <= 60
        undocumented = [each.name for each in command.params if isinstance(each, click.Option) and not each.help]
        if (explained, listed, undocumented) != (True, True, []):
            offenders.append((path, explained, listed, undocumented))
    assert offenders == []


def test_jobs_are_listed_with_their_own_short_help():
    assert {name: COMMANDS[f"pipeline {name}"].short_help for name in PIPELINE} == JOBS


def test_jobs_are_listed_and_completed_without_spark(invoke: Invoke, monkeypatch: pytest.MonkeyPatch):
    found = importlib.import_module

    def no_import(name: str, package: str | None = None) -> ModuleType:
        if package == pipeline.__package__:
            raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        return found(name, package)

    group = pipeline.pipeline
    monkeypatch.setattr(importlib, "import_module", no_import)
    shown = group.get_help(click.Context(group))
    assert all(f"  {name} " in shown for name in PIPELINE)
    completed = group.shell_complete(click.Context(group), "re")
    assert [each.value for each in completed] == ["report", "restore", "redrive"]
    result = invoke("pipeline", "report", "--help")
    assert (result.exit_code, install("spark") in result.stderr) == (2, True)


def test_command_that_reaches_a_server_takes_its_url():
    reaching = {path: each for path, each in COMMANDS.items() if not isinstance(each, click.Group)}
    options = {path: {name for each in command.params for name in each.opts} for path, command in reaching.items()}
    assert {path for path, names in options.items() if not {"--url", "--prefix"} <= names} <= SERVERLESS


def test_help_ends_in_an_example_of_the_command(invoke: Invoke):
    offenders = {}
    for path in COMMANDS:
        result = invoke(*path.split(), "--help")
        assert result.exit_code == 0, path
        last = shlex.split(example(result.stdout).splitlines()[-1])
        if not " ".join(last).startswith(" ".join(["delayq", *path.split()])):
            offenders[path] = last
    assert offenders == {}


@pytest.mark.full
@pytest.mark.parametrize("path", ["send", "consume"])
def test_example_runs_in_a_shell_as_it_is_printed(
    path: str, invoke: Invoke, environment: dict[str, str], tmp_path: Path
):
    program = tmp_path / "bin" / "delayq"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m delayq.cli "$@"\n')
    program.chmod(0o755)
    script = example(invoke(path, "--help").stdout)
    found = environment | {"PATH": f"{program.parent}{os.pathsep}{environment['PATH']}"}
    done = subprocess.run(
        ["sh", "-eu", "-c", script],
        env=found,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("path", sorted(set(COMMANDS) - RUN_ELSEWHERE))
def test_each_line_of_the_example_succeeds(path: str, invoke: Invoke, tmp_path: Path):
    for line in example(invoke(*path.split(), "--help").stdout).splitlines():
        program, *words = shlex.split(line)
        if program == "delayq":
            result = invoke(*words)
            assert result.exit_code == 0, result.stderr
            # The programs of consume write to the real stdout, and there are no consumers to list.
            assert result.stdout or words[0] in ("consume", "consumers")
        else:
            subprocess.run(line, shell=True, cwd=tmp_path, check=True)


def test_help_lists_the_commands_in_the_order_of_a_messages_life(invoke: Invoke):
    shown = invoke("--help").stdout.partition("\nOptions:")[2]
    order = ["demo", "send", "peek", "show", "why", "result", "reschedule", "cancel", "consume", "dead", "stats"]
    places = [shown.index(f"\n  {name} ") for name in order]
    assert places == sorted(places)


def test_help_fits_80_columns(invoke: Invoke):
    shown = {path: invoke(*path.split(), "--help", env={"COLUMNS": "200"}).stdout for path in COMMANDS}
    wide = {path: [line for line in text.splitlines() if len(line) > 80] for path, text in shown.items()}
    assert {path: lines for path, lines in wide.items() if lines} == {}


@pytest.mark.parametrize("words", [["stats"], ["send", "emails", "payload"], ["topic", "list"], ["exporter", "--once"]])
def test_server_may_be_given_before_the_command(words: list[str], invoke: Invoke, server: RedisServer):
    with Queue("emails", url=server.url, prefix="other") as queue:
        queue.send("payload")
    nowhere = {"DELAYQ_URL": "redis://127.0.0.1:1"}
    assert invoke(*words, env=nowhere).exit_code == 1
    before = ["--url", server.url, "--prefix", "other"]
    assert invoke(*before, *words, env=nowhere).exit_code == 0
    assert invoke("--url", "redis://127.0.0.1:1", *words, "--url", server.url).exit_code == 0
    assert "the URL is empty" in invoke("--url", "", *words).stderr
    counted = json.loads(invoke(*before, "stats", "emails", "--json", env=nowhere).stdout)
    assert counted["sent"] == 2 if words[0] == "send" else 1


def test_command_without_arguments_gets_the_help_and_exit_code_2(invoke: Invoke):
    result = invoke()
    assert result.exit_code == 2
    assert "Usage: delayq" in result.stderr
    assert result.stdout == ""


def test_version_is_that_of_the_library(invoke: Invoke, delayq: Run):
    assert library.__version__ in invoke("--version").stdout
    assert library.__version__ in delayq("--version", program=[sys.executable, "-m", "delayq"]).stdout


def test_example_of_requeue_finds_its_dead_letter(invoke: Invoke):
    lines = [shlex.split(line) for line in example(invoke("dead", "requeue", "--help").stdout).splitlines()]
    assert [invoke(*words).stdout for _, *words in lines][-1] == "would requeue 1 of 1 dead letter\n"
