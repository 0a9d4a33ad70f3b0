"""Commands and options of other queues: each error says what they are called here, or what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from delayq.cli import main
from delayq.cli.consume.command import CHOOSE, VARIABLES, _alone, consume

from delayq import Queue
from delayq.model import other_libraries
from tests.cli.conftest import Invoke, Run

LISTED = {
    "enqueue": "did you mean 'delayq send'?",
    "requeue": "Did you mean 'delayq dead requeue'",
    "scheduler": "consumers run schedules",
    "monitor": "`delayq top`",
    "worker": "`delayq consume MODULE:QUEUE`",
    "beat": "consumers run schedules",
    "run": "`delayq consume MODULE:QUEUE`",
    "inspect": "`delayq stats`",
    "flower": "did you mean 'delayq dashboard'?",
    "info": "did you mean 'delayq stats'?",
    "retry": "`delayq dead requeue QUEUE`",
}
"""What people typed, and a part of the answer."""

TYPED = [
    *("-A", "-B", "-Q", "-l", "-P", "--queues", "--beat", "--threads"),
    *("--autoscale", "--workers", "--max-tasks-per-child", "--detach"),
]


def names(group: click.Group, path: str = "") -> Iterator[str]:
    """All commands, such as "dead requeue"."""
    context = click.Context(group)
    for name in group.list_commands(context):
        yield f"{path}{name}"
        below = group.get_command(context, name)
        if isinstance(below, click.Group):
            yield from names(below, f"{path}{name} ")


@pytest.mark.parametrize(("word", "meant"), other_libraries.COMMANDS.items(), ids=other_libraries.COMMANDS)
def test_command(word: str, meant: str, invoke: Invoke):
    done = invoke(word, "-x", "emails")
    said = f": did you mean 'delayq {meant}'?" if " " not in meant else f": {meant}"
    assert (done.exit_code, done.stderr) == (2, f"delayq: No such command '{word}'{said} (see delayq --help)\n")


@pytest.mark.parametrize("word", LISTED)
def test_command_that_people_typed(word: str, invoke: Invoke):
    assert LISTED[word] in invoke(word, "emails").stderr


@pytest.mark.parametrize(("word", "meant"), other_libraries.OPTIONS.items(), ids=other_libraries.OPTIONS)
def test_option_of_consume(word: str, meant: str, invoke: Invoke):
    done = invoke("consume", word, "5", "tasks:emails")
    said = f". Did you mean '{meant}'?" if " " not in meant else f": {meant}"
    expected = f"delayq: No such option '{word}'{said} (see delayq consume --help)\n"
    assert (done.exit_code, done.stderr) == (2, expected)
    assert word not in {option for each in consume.params for option in each.opts}


def test_options_that_people_typed_are_answered():
    assert set(TYPED) <= other_libraries.OPTIONS.keys()


def test_option_before_the_command_is_answered(invoke: Invoke):
    assert "'-A': give MODULE:QUEUE as TARGET" in invoke("-A", "tasks", "worker", "-l", "info").stderr


@pytest.mark.parametrize(("word", "meant"), [each for each in other_libraries.OPTIONS.items() if "--" in each[1]])
def test_option_before_the_command_is_not_answered_with_one_of_consume(word: str, meant: str, invoke: Invoke):
    done = invoke(word, "4", "stats")
    assert (done.exit_code, meant in done.stderr) == (2, False)


def test_answers_name_commands_and_options_that_exist():
    assert isinstance(main, click.Group)
    commands = set(names(main))
    assert {meant for meant in other_libraries.COMMANDS.values() if " " not in meant} <= commands
    tables = (other_libraries.COMMANDS, other_libraries.OPTIONS, other_libraries.OF_QUEUE, other_libraries.SEND)
    text = " ".join(meant for table in tables for meant in table.values())
    named = re.findall(r"delayq ((?:[a-z]+ ?)+)", text)
    assert {re.sub(r"^consume .*", "consume", name.strip()) for name in named} <= commands
    options = {option for each in consume.params for option in each.opts}
    assert set(re.findall(r"--[a-z-]+", " ".join(other_libraries.OPTIONS.values()))) <= options


@pytest.mark.parametrize(
    ("target", "module"), [("./pkg.py:app", "pkg:app"), ("src/pkg/app.py:q", "src.pkg.app:q"), ("a.py", "a:emails")]
)
def test_file_as_a_target_is_refused_with_the_module(target: str, module: str, invoke: Invoke):
    done = invoke("consume", target)
    assert done.exit_code == 2
    assert re.search(f" in '{re.escape(target)}' is a file: give the name .*, such as {module} ", done.stderr)


def test_variable_sets_an_option_that_the_command_line_does_not(delayq: Run, queue: Queue):
    for number in range(3):
        queue.send(number)
    words = ["consume", "emails", "--exec", "cat"]
    done = delayq(*words, env={"DELAYQ_MAX_MESSAGES": "1", "DELAYQ_LOG_FORMAT": "json", "DELAYQ_CONCURRENCY": "1"})
    assert (done.returncode, done.stderr[:1], queue.stats().acked) == (0, "{", 1)
    assert delayq(*words, "--max-messages", "2", env={"DELAYQ_MAX_MESSAGES": "1"}).returncode == 0
    assert queue.stats().acked == 3


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("DELAYQ_CONCURRENCY", "many", "'many' is not a valid integer"),
        ("DELAYQ_CONCURRENCY", "0", "0 is not in the range 1<=x<="),
        ("DELAYQ_LOG_FORMAT", "yaml", "'yaml' is not one of 'console', 'json'"),
        ("DELAYQ_SHUTDOWN_TIMEOUT", "soon", "'soon' is not a duration"),
        ("DELAYQ_BURST", "perhaps", "'perhaps' is not a valid boolean"),
    ],
)
def test_bad_value_of_a_variable_is_refused_by_its_name(name: str, value: str, expected: str, invoke: Invoke):
    done = invoke("consume", "tasks:emails", env={name: value})
    assert done.exit_code == 2
    assert f"Invalid value for '{name}': {expected}" in done.stderr


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"DELAYQ_LEASE": "60s"}, ["tasks:emails"]),
        ({"DELAYQ_POOL": "process"}, ["emails", "--exec", "cat"]),
        ({"DELAYQ_RECYCLE_AFTER": "5", "DELAYQ_MAX_MESSAGES": "3"}, ["tasks:emails"]),
    ],
    ids=" ".join,
)
def test_refusal_of_options_together_names_the_variables_that_set_them(
    variables: dict[str, str], words: list[str], invoke: Invoke
):
    done = invoke("consume", *words, env=variables)
    assert done.exit_code == 2
    for name in variables:
        assert f"({name} sets --{name.removeprefix('DELAYQ_').lower().replace('_', '-')})" in done.stderr


@pytest.mark.parametrize("flag", [each for each in consume.params if isinstance(each, click.Option) and each.is_flag])
def test_flag_that_a_variable_turns_off_stays_off_in_the_processes(flag: click.Option, monkeypatch: pytest.MonkeyPatch):
    if flag.name not in VARIABLES:
        assert flag.name in CHOOSE
        return
    monkeypatch.setenv(VARIABLES[flag.name], "0")
    context = consume.make_context("consume", ["tasks:emails", "-p", "2"])
    assert max(flag.opts, key=len) not in _alone(context)


def test_variables_are_those_that_the_docs_promise():
    assert VARIABLES["concurrency"] == "DELAYQ_CONCURRENCY"
    assert {*VARIABLES} >= {"log_format", "processes", "metrics_port", "recycle_memory", "max_deliveries"}
    assert {*VARIABLES} & {"program", "topic", "group", "url", "prefix", "log_level"} == set()


def test_process_of_several_does_not_start_several_itself(delayq: Run, queue: Queue, tmp_path: Path):
    """The supervisor's own settings stay with it, also if variables give them."""
    queue.send("x")
    script = "env | grep -c -e DELAYQ_PROCESSES -e DELAYQ_METRICS_HOST >seen; true"
    variables = {"DELAYQ_PROCESSES": "2", "DELAYQ_BURST": "1", "DELAYQ_METRICS_HOST": "127.0.0.1"}
    assert delayq("consume", "emails", "--exec", script, env=variables).returncode == 0
    assert (queue.stats().acked, (tmp_path / "seen").read_text()) == (1, "0\n")


def test_redis_url_that_is_not_read_is_mentioned(delayq: Run):
    unset = {"DELAYQ_URL": None, "REDIS_URL": "redis://127.0.0.1:1"}
    done = delayq("stats", env=unset)
    assert (done.returncode, "DELAYQ_URL is not set (REDIS_URL is set, but not read)" in done.stderr) == (1, True)
    done = delayq("send", "emails", "hello", env=unset | {"DELAYQ_LOG_LEVEL": "info"})
    assert (done.returncode, done.stderr.count("REDIS_URL is not read")) == (0, 1)
    assert "REDIS_URL" not in delayq("send", "emails", "hello", env={"REDIS_URL": "redis://127.0.0.1:1"}).stderr
