"""Nothing that others put into a queue reaches the terminal as a command or breaks the layout of the output."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from delayq.cli.output import printable, printable_json
from delayq.cli.progress import ProgressBar
from hypothesis import given
from hypothesis import strategies as st

from delayq import Queue
from tests.cli import conftest
from tests.cli.conftest import Invoke
from tests.harness.hostile import TEXTS, commands_to_a_terminal, examples, texts
from tests.harness.servers import RedisServer

environment, invoke, queue, server = conftest.environment, conftest.invoke, conftest.queue, conftest.server

ATTACK = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\x7f\u202e\u2028\u200b"
UNSEEN = "\u202e\u200b"  # allowed in names


@pytest.fixture
def attacked(queue: Queue) -> Queue:
    """A queue where everything that a sender or handler can choose contains terminal commands."""
    queue.configure(events=True)
    queue.send(
        {f"k{ATTACK}": ATTACK}, id=f"json{UNSEEN}", delay=60, headers={f"h{ATTACK}": ATTACK, "b": ATTACK.encode()}
    )
    queue.send(ATTACK.encode(), id=f"raw{UNSEEN}", delay=60)
    for number, name in enumerate(("retry", "dead", "unack")):
        queue.send(ATTACK, id=f"{name}{UNSEEN}")
        (message,) = queue.receive()
        if number == 0:
            message.nack(delay=3600, error=ATTACK)
        elif number == 1:
            message.reject(ATTACK, error=f"{ATTACK}\n{ATTACK}")
    return queue


LOOKS = [
    *(["peek", "emails", "--state", state] for state in ("pending", "unack", "retry", "dead")),
    *(["show", "emails", f"{name}{UNSEEN}"] for name in ("json", "raw", "retry", "dead", "unack")),
    *(["show", "emails", f"{name}{UNSEEN}", "--history"] for name in ("json", "raw", "retry", "dead", "unack")),
    ["topic", "read", "emails", "--ledger"],
    ["topic", "tail", "emails", "--ledger", "--from", "0", "--wait", "0"],
    *(["why", "emails", f"{name}{UNSEEN}"] for name in ("json", "retry", "dead", "unack", "nobody")),
    ["dead", "list", "emails"],
    ["dead", "show", "emails", f"dead{UNSEEN}"],
    ["stats", "emails"],
]


def test_inspecting_a_queue_prints_no_terminal_command(attacked: Queue, invoke: Invoke) -> None:
    assert attacked.name == "emails"
    for words in LOOKS:
        for more in ([], ["--json"]):
            result = invoke(*words, *more)
            assert result.exit_code == 0, result.stderr
            assert commands_to_a_terminal(result.stdout + result.stderr) == set(), words
        assert all(json.loads(line) for line in result.stdout.splitlines()), words


COMMANDS = [
    ["show", "emails", f"nobody{UNSEEN}"],
    ["dead", "show", "emails", f"json{UNSEEN}"],
    ["reschedule", "emails", f"dead{UNSEEN}", "--delay", "5s"],
    ["reschedule", "emails", f"json{UNSEEN}", "--delay", "5s"],
    ["now", "emails", f"dead{UNSEEN}", f"json{UNSEEN}"],
    ["cancel", "emails", f"unack{UNSEEN}"],
    ["cancel", "emails", f"json{UNSEEN}"],
    ["send", "emails", ATTACK, "--id", f"new{UNSEEN}"],
    ["send", f"emails{UNSEEN}", "x"],
    ["pause", f"emails{UNSEEN}"],
    ["doctor", f"emails{UNSEEN}"],
    ["stats", f"nothing{UNSEEN}"],
    ["send", "emails", "x", "--id", ATTACK],
    ["send", "emails", "x", "--delay", ATTACK],
    ["send", "emails", "x", "--at", ATTACK],
    ["send", "emails", "x", "--header", ATTACK],
    ["send", "emails", "x", "--on-conflict", ATTACK],
    ["send", "emails", "--file", ATTACK],
    ["send", ATTACK, "x"],
    ["stats", "--prefix", ATTACK],
    ["stats", "--url", f"redis://{ATTACK}"],
    ["stats", "--url", ATTACK],
    ["stats", "--url", "redis://127.0.0.1%1b[2J:1"],
    ["stats", "--url", "unix:///nowhere/%1b%5b2J%9b"],
    ["consume", f"os:{ATTACK}"],
    ["consume", f"{ATTACK}:queue"],
    [ATTACK],
    ["send", f"--{ATTACK}"],
]


@pytest.mark.parametrize("number", range(len(COMMANDS)))
def test_command_output_has_no_terminal_command(number: int, attacked: Queue, invoke: Invoke) -> None:
    assert attacked.name == "emails"
    result = invoke(*COMMANDS[number])
    assert result.exit_code in (0, 1, 2)
    assert result.stdout + result.stderr
    assert commands_to_a_terminal(result.stdout + result.stderr) == set()


@pytest.mark.parametrize(
    "line", [{"payload": 1, f"x{ATTACK}": 1}, {"payload": 1, "at": ATTACK}, {"payload": 1, "id": ATTACK}]
)
def test_refusal_of_a_line_prints_no_terminal_command(line: dict[str, object], invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / f"a{UNSEEN}\x1b.jsonl"
    path.write_text(json.dumps(line))
    result = invoke("send", "emails", "--file", str(path))
    assert result.exit_code == 2
    assert "line 1: " in result.stderr
    assert commands_to_a_terminal(result.stdout + result.stderr) == set()


def test_queue_of_another_program_is_shown_without_a_terminal_command(
    invoke: Invoke, queue: Queue, redis_client: redis.Redis
) -> None:
    queue.send("x")
    redis_client.hset(f"delayq:{{emails{UNSEEN}}}:meta", mapping={"format": 99, "shards": ATTACK})
    redis_client.zadd("delayq:{emails}:pending", {ATTACK: 1})
    for words in (["stats"], ["doctor"], ["peek", "emails"], ["doctor", "--json"]):
        result = invoke(*words)
        assert commands_to_a_terminal(result.stdout + result.stderr) == set(), words


HANDLING = """
import sys
from delayq import Consumer, Queue
from delayq.cli.logging import configure

configure(sys.argv[2])
queue = Queue("emails", url=sys.argv[1])

def handle(message):
    import logging
    logging.getLogger("mine").warning("got %s", message.payload)
    raise ValueError(message.payload)

Consumer(queue, handle).run(burst=True)
"""


@pytest.mark.parametrize("form", ["console", pytest.param("json", marks=pytest.mark.full)])
def test_log_has_no_terminal_command_from_a_message(form: str, queue: Queue, server: RedisServer) -> None:
    queue.send(ATTACK, id=f"a{UNSEEN}")
    command = [sys.executable, "-c", HANDLING, server.url, form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, encoding="utf-8")
    assert "owned" in done.stderr
    assert "ValueError" in done.stderr
    assert commands_to_a_terminal(done.stderr) == set()
    if form == "json":
        assert [json.loads(line)["event"] for line in done.stderr.splitlines()]


@pytest.mark.parametrize("label", ["[/x]", "[bold]", ATTACK])
def test_progress_bar_prints_no_terminal_command_from_its_label(label: str, capsys: pytest.CaptureFixture[str]) -> None:
    bar = ProgressBar(label, 10, shown=True)
    bar._due = 0.0  # as if a second had passed
    bar.advance(1)
    bar.stop()
    assert "\x1b]0;" not in capsys.readouterr().err


@examples
@given(texts)
def test_printable_text_is_one_line_without_a_terminal_command(text: str) -> None:
    assert commands_to_a_terminal(printable(text)) == set()
    assert "\n" not in printable(text)


@pytest.mark.full
@examples
@given(st.dictionaries(texts, texts | st.integers(), max_size=3), st.sampled_from([None, 2]))
def test_escaped_json_means_the_same(document: dict[str, object], indent: int | None) -> None:
    shown = printable_json(json.dumps(document, ensure_ascii=False, indent=indent))
    assert commands_to_a_terminal(shown) == set()
    assert "\n" not in shown
    assert json.loads(shown) == document


def test_hostile_texts_contain_what_they_should() -> None:
    assert commands_to_a_terminal(ATTACK) == set(ATTACK) - set("[2J]0;owned31m")
    assert any(commands_to_a_terminal(text) for text in TEXTS)
