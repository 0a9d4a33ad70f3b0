"""dead requeue with filters, --rate and --dry-run; dead edit with options and in an editor on a terminal."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from delayq import Queue
from delayq.errors import ServerUnreachable
from delayq.model.delivery import Outgoing
from delayq.operations.bulk.redrive import Redrive
from tests.cli.conftest import Invoke, Start, read_all
from tests.harness.waiting import eventually


def kill(queue: Queue, error: str = "boom", **options: Any) -> str:
    sent = queue.send({"to": "nobody"}, **options)
    (message,) = queue.receive()
    message.reject("killed", error=error)
    return sent.id


@pytest.fixture
def stocked(queue: Queue) -> Queue:
    kill(queue, "TimeoutError: timed out", id="a", headers={"tenant": "a"})
    kill(queue, "HTTP 503", id="b", headers={"tenant": "b"})
    kill(queue, "HTTP 404", id="c", headers={"tenant": "a", "kind": "bill"})
    return queue


def pending(queue: Queue) -> str:
    return "".join(sorted(info.id for info in queue.peek("pending")))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["--error", "HTTP"], "bc"),
        (["--error", "."], ""),
        (["--error-regex", "(?i)http 4|TIMEOUT"], "ac"),
        (["--reason", "killed"], "abc"),
        (["-H", "tenant=a", "--header", "kind=bill"], "c"),
        (["--older-than", "1h"], ""),
        (["--older-than", "0s"], "abc"),
        (["--newer-than", "1h", "--error", "HTTP"], "bc"),
        (["--older-than", "2020-01-01T00:00Z"], ""),
        (["--newer-than", "2020-01-01T00:00+01:00"], "abc"),
        (["--all"], "abc"),
    ],
)
def test_messages_that_match_all_filters_are_requeued(words: list[str], meant: str, invoke: Invoke, stocked: Queue):
    count = f"{len(meant)} message{'' if len(meant) == 1 else 's'}"
    dry = invoke("dead", "requeue", "emails", *words, "--dry-run")
    assert (dry.stdout, pending(stocked)) == (f"would requeue {len(meant)} of 3 dead letters\n", "")
    done = invoke("dead", "requeue", "emails", *words)
    assert (done.exit_code, done.stdout, done.stderr) == (0, f"requeued {count}\n", "")
    assert pending(stocked) == meant


def test_result_is_printed_as_json(invoke: Invoke, stocked: Queue):
    words = ("dead", "requeue", "emails", "--error", "HTTP", "--json")
    assert json.loads(invoke(*words, "--dry-run").stdout) == {"matched": 2, "requeued": 0}
    assert json.loads(invoke(*words, "--rate", "100/s", "--delay", "1h").stdout) == {"matched": 2, "requeued": 2}
    assert stocked.receive() == []


def test_message_without_payload_is_not_requeued_and_is_counted(invoke: Invoke, stocked: Queue, redis_client: Any):
    redis_client.delete(stocked._context.shards[0].keys.message("b"))
    result = invoke("dead", "requeue", "emails", "--all")
    assert (result.stdout, pending(stocked)) == ("requeued 2 messages\n", "ac")
    assert result.stderr == "not requeued: 1, not dead or without a payload\n"


@pytest.mark.full
def test_interrupted_redrive_prints_how_to_continue(start: Start, invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing(number) for number in range(5)])
    for message in queue.receive(5):
        message.reject("killed")
    process = start("dead", "requeue", "emails", "--reason", "killed", "--newer-than", "1d", "--rate", "1/h")
    assert eventually(lambda: queue.stats().requeued == 1)
    process.send_signal(signal.SIGINT)
    said, trouble = process.communicate(timeout=120)
    assert (process.returncode, said) == (1, "")
    progress, bounds = next(line for line in trouble.splitlines() if line).split("continue with ")
    assert progress in {"requeued 1 message so far; ", "requeued 0 messages so far; "}  # before the reply was read
    assert trouble.endswith("delayq: aborted\n")
    queue.receive()[0].reject("killed")  # the requeued message dies again, and so does a new one
    kill(queue)
    assert invoke("dead", "requeue", "emails", *bounds.split()).stdout == "requeued 4 messages\n"
    assert (queue.stats().dead, queue.stats().missing) == (2, 0)


def test_redrive_whose_first_step_fails_prints_how_to_continue(
    invoke: Invoke, stocked: Queue, monkeypatch: pytest.MonkeyPatch
):
    def fail(_: Redrive) -> NoReturn:
        raise ServerUnreachable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(Redrive, "_look", fail)
        failed = invoke("dead", "requeue", "emails", "--newer-than", "1d")
    assert (failed.exit_code, pending(stocked)) == (1, "")
    said, bounds = failed.stderr.splitlines()[0].split("continue with ")
    assert said == "requeued 0 messages so far; "
    assert invoke("dead", "requeue", "emails", *bounds.split()).stdout == "requeued 3 messages\n"


@pytest.mark.full
@pytest.mark.parametrize("terminal", [True, False])
def test_long_redrive_gets_a_progress_bar_on_a_terminal_only(
    terminal: bool, start: Start, environment: dict[str, str], queue: Queue
):
    queue.send_many([Outgoing(number) for number in range(8)])
    for message in queue.receive(8):
        message.reject("killed")
    control, end = pty.openpty()
    words = ("dead", "requeue", "emails", "--all", "--rate", "5/s")
    stderr = end if terminal else subprocess.PIPE
    process = start(*words, env=environment | {"TERM": "xterm"}, stderr=stderr)
    os.close(end)
    if not terminal:
        os.close(control)
    shown = read_all(control) if terminal else ""
    said, trouble = process.communicate(timeout=120)
    assert (process.returncode, said) == (0, "requeued 8 messages\n")
    assert ("requeueing emails" in shown + (trouble or "")) == terminal


def test_dead_letter_is_requeued_with_the_new_values(invoke: Invoke, stocked: Queue):
    words = ("--payload", '{"to": "somebody"}', "-H", "kind=mail", "-H", "n=1", "--without-header", "tenant")
    result = invoke("dead", "edit", "emails", "c", *words)
    assert (result.exit_code, result.stdout) == (0, "edited and requeued c\n")
    (message,) = stocked.receive()
    assert (message.id, message.payload, message.attempt) == ("c", {"to": "somebody"}, 2)
    assert message.headers == {"kind": "mail", "n": "1"}


def test_timeout_alone_changes_nothing_else(invoke: Invoke, stocked: Queue):
    result = invoke("dead", "edit", "emails", "a", "--timeout", "5m")
    assert (result.exit_code, result.stdout) == (0, "edited and requeued a\n")
    info = stocked.get("a")
    assert info is not None
    assert (info.state, info.payload, info.timeout) == ("pending", {"to": "nobody"}, 300)
    (message,) = stocked.receive()
    message.reject()
    assert invoke("dead", "edit", "emails", "a", "--without-timeout").exit_code == 0
    info = stocked.get("a")
    assert info is not None
    assert (info.payload, info.timeout) == ({"to": "nobody"}, None)


def test_headers_alone_do_not_change_the_payload(invoke: Invoke, stocked: Queue):
    result = invoke("dead", "edit", "emails", "a", "-H", "tenant=b", "--delay", "1h", "--json")
    assert json.loads(result.stdout) == {"id": "a", "requeued": 1}
    info = stocked.get("a")
    assert info is not None
    assert (info.state, info.payload, info.headers) == ("pending", {"to": "nobody"}, {"tenant": "b"})
    assert stocked.receive() == []


@pytest.mark.parametrize(
    ("old", "words", "new"),
    [
        ("x", [], "hello"),
        ("x", ["--as", "raw"], b"hello\n"),
        (b"x", [], b"hello\n"),
        (b"x", ["--as", "text"], "hello"),
    ],
)
def test_payload_may_come_from_a_file_or_stdin(
    old: Any, words: list[str], new: Any, invoke: Invoke, queue: Queue, tmp_path: Path
):
    (tmp_path / "new.txt").write_text("hello\n")
    for source in ("new.txt", "-"):
        queue.send(old, id="a", on_conflict="replace")
        queue.receive()[0].reject()
        assert invoke("dead", "edit", "emails", "a", "--file", source, *words, input="hello\n").exit_code == 0
        assert queue.receive()[0].payload == new


@pytest.mark.parametrize(
    ("id", "named"), [("nobody", "'nobody' is not in the queue"), ("lives", "is not dead but scheduled")]
)
def test_message_that_is_not_dead_is_not_edited(id: str, named: str, invoke: Invoke, queue: Queue):
    queue.send("x", id="lives", delay=60)
    result = invoke("dead", "edit", "emails", id, "--payload", "y")
    assert (result.exit_code, result.stdout) == (1, "")
    assert named in result.stderr


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--payload", "{", "--as", "json"], "the payload is not JSON"),
        (["--payload", "x" * 1024 * 1025], "at most 1,048,576"),
        (["--without-header", "tenants"], "has no header 'tenants': its headers are tenant"),
        ([], "there is no terminal: to edit without an editor, give --payload or --file"),
    ],
)
def test_bad_edit_changes_nothing(words: list[str], named: str, invoke: Invoke, stocked: Queue):
    before = stocked.get("a")
    result = invoke("dead", "edit", "emails", "a", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert named in result.stderr
    assert stocked.get("a") == before


# In an editor, which is a program of one line here


def run_on_terminal(start: Start, environment: dict[str, str], editor: str, answer: str = "") -> tuple[int, str]:
    """Edit order-42 on a terminal, where ``text`` is the editor's text; return the exit code and the output."""
    program = f"import sys; f = sys.argv[1]; text = open(f).read(); {editor}"
    control, end = pty.openpty()
    own = environment | {"EDITOR": f"{sys.executable} -c '{program}'", "TERM": "xterm"}
    own.pop("VISUAL", None)
    process = start("dead", "edit", "emails", "order-42", env=own, stdin=end, stdout=end, stderr=end)
    os.close(end)
    shown = b""
    try:
        while part := os.read(control, 65_536):
            shown += part
            if answer and shown.endswith(b"[Y/n]: "):
                os.write(control, answer.encode())
                answer = ""
    except OSError:  # how Linux says that the last user of the terminal is gone
        pass
    os.close(control)
    return process.wait(timeout=120), shown.decode().replace("\r\n", "\n")


SAVE = 'import os; open(f, "w").write({}); os.utime(f, (0, 0))'  # it was saved, at any resolution of the clock


def test_payload_is_edited_as_readable_json(start: Start, environment: dict[str, str], queue: Queue):
    kill(queue, id="order-42")
    code, shown = run_on_terminal(
        start, environment, SAVE.format('text.replace("nobody", "somebody")') + "; print(text)"
    )
    assert code == 0
    assert shown == '{\n  "to": "nobody"\n}\n\nedited and requeued order-42\n'
    assert queue.receive()[0].payload == {"to": "somebody"}


@pytest.mark.full
def test_bytes_that_are_text_are_edited_as_such(start: Start, environment: dict[str, str], queue: Queue):
    for old, new in ((b"old", b"new"), (b"old\n", b"new\n")):
        queue.send(old, id="order-42", on_conflict="replace")
        queue.receive()[0].reject()
        code, _ = run_on_terminal(start, environment, SAVE.format('text.replace("old", "new")'))
        assert (code, queue.receive()[0].payload) == (0, new)


@pytest.mark.full
@pytest.mark.parametrize(
    ("editor", "said"),
    [("", "nothing was saved: message 'order-42' is unchanged"), ("sys.exit(3)", "Editing failed")],
)
def test_editor_that_saves_nothing_changes_nothing(
    editor: str, said: str, start: Start, environment: dict[str, str], queue: Queue
):
    kill(queue, id="order-42")
    before = queue.get("order-42")
    code, shown = run_on_terminal(start, environment, editor)
    assert (code, queue.get("order-42")) == (1, before)
    assert said in shown


@pytest.mark.full
@pytest.mark.parametrize(("answer", "code", "state"), [("y\n", 0, "pending"), ("n\n", 1, "dead")])
def test_malformed_json_may_be_corrected(
    answer: str, code: int, state: str, start: Start, environment: dict[str, str], queue: Queue
):
    """The editor opens again with the text that was written."""
    kill(queue, id="order-42")
    broken = '{\\"to\\": 4'.replace('\\"', '"')
    editor = SAVE.format(f'text.rstrip() + "}}" if text.endswith("4\\n") else """{broken}"""')
    done, shown = run_on_terminal(start, environment, editor, answer)
    assert "delayq: the payload is not JSON" in shown
    info = queue.get("order-42")
    assert info is not None
    assert (done, info.state) == (code, state)
    assert info.payload == ({"to": 4} if answer == "y\n" else {"to": "nobody"})


@pytest.mark.full
def test_dead_letter_that_was_requeued_meanwhile_is_not_edited(start: Start, environment: dict[str, str], queue: Queue):
    """While the editor is open, a colleague requeues the message, and it dies again."""
    kill(queue, id="order-42")
    keys = queue._context.shards[0].keys
    socket = environment["DELAYQ_URL"].removeprefix("unix://").partition("?")[0]
    died_anew = f'import redis; redis.Redis(unix_socket_path="{socket}").zincrby("{keys.dead}", 5, "order-42")'
    code, shown = run_on_terminal(start, environment, f"{died_anew}; {SAVE.format('text')}")
    assert code == 1
    assert "has left the dead letters in the meantime, or died again" in shown
    assert queue.stats().dead == 1


@pytest.mark.full
def test_binary_payload_is_not_opened_in_an_editor(start: Start, environment: dict[str, str], queue: Queue):
    queue.send(b"\xff\x00", id="order-42")
    queue.receive()[0].reject()
    code, shown = run_on_terminal(start, environment, "print(text)")
    assert code == 2
    assert "the payload is not text: give a new one with --payload or --file" in shown


def test_causes_are_counted_with_an_example_the_most_frequent_first(invoke: Invoke, queue: Queue):
    assert invoke("dead", "causes", "emails").stderr == "queue emails has no dead letters\n"
    for number, error in enumerate(["no answer within 7 s", "no such address", "no answer within 30 s"]):
        queue.send("payload", id=f"m{number}")
        queue.receive()[0].reject("refused", error=error)
    lines = [re.split(" {2,}", line.strip()) for line in invoke("dead", "causes", "emails").stdout.splitlines()]
    assert lines[0] == ["count", "last died", "example", "cause"]
    assert [(line[0], *line[2:]) for line in lines[1:]] == [
        ("2", "m2", "refused: no answer within # s"),
        ("1", "m1", "refused: no such address"),
    ]
    documents = [json.loads(line) for line in invoke("dead", "causes", "emails", "--json").stdout.splitlines()]
    assert [(each["count"], each["error"]) for each in documents] == [
        (2, "no answer within # s"),
        (1, "no such address"),
    ]
    some = invoke("dead", "causes", "emails", "--most", "1")
    assert some.stderr == "counted the latest 1 of 3 dead letters; --most N counts more\n"
