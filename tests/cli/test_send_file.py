"""send --file: what a line may contain, and what happens to any other line."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import time

import pytest
import redis
from delayq.cli import json_lines, progress
from delayq.cli.send import file

from delayq import Queue
from delayq.model.delivery import Outgoing
from delayq.operations import send
from delayq.operations.byte_budget import UP_BYTES
from tests.cli.conftest import SECONDS, Invoke, Start, read_all
from tests.harness.lines import Write, numbered, numbers
from tests.harness.waiting import eventually


def test_lines_become_messages_with_their_options(invoke: Invoke, queue: Queue, write: Write):
    write(
        [
            {"payload": {"to": "a"}, "delay": "1h30m", "id": "order-1", "headers": {"kind": "x", "n": 1}},
            {"payload": None, "delay": 60, "max_retries": 9, "expires_in": "2m", "timeout": "1m30s"},
            {"payload": 1.5, "at": "2046-12-24T18:00+01:00", "on_conflict": "error"},
            "",
            {"payload": "first", "id": "twice"},
            {"payload": "second", "id": "twice"},
            {"payload": "third", "id": "twice", "on_conflict": "replace"},
        ]
    )
    result = invoke("send", "emails", "--file", "emails.jsonl", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"queue": "emails", "file": "emails.jsonl", "sent": 4, "existed": 2}
    order, twice = queue.get("order-1"), queue.get("twice")
    assert order is not None
    assert (order.payload, order.headers) == ({"to": "a"}, {"kind": "x", "n": 1})
    assert twice is not None
    assert twice.payload == "third"
    others = {info.payload: info for info in queue.peek("pending") if info.id not in ("order-1", "twice")}
    assert (others[None].max_retries, others[None].timeout) == (9, 90)
    assert others[None].expires_at is not None
    assert others[1.5].due_at is not None
    assert others[1.5].due_at.isoformat() == "2046-12-24T17:00:00+00:00"


@pytest.mark.parametrize("stream", [False, True], ids=["file", "stdin"])
def test_line_may_reserve_its_id(invoke: Invoke, queue: Queue, write: Write, stream: bool):
    lines: list[object] = [
        {"payload": 1},
        {"payload": 2, "id": "a", "unique_for": "5m"},
        {"payload": 3, "id": "b", "unique_for": 300},
        {"payload": 4},
    ]
    write(lines)
    text = "".join(json.dumps(line) + "\n" for line in lines)
    words = ("send", "emails", "--file", "-") if stream else ("send", "emails", "--file", "emails.jsonl")
    assert invoke(*words, input=text).exit_code == 0
    assert queue.ack(queue.receive(10)) == [True] * 4
    assert not queue.send(5, id="a", unique_for=60).created
    assert "2 already existed" in invoke(*words, input=text).stdout
    assert sorted(message.payload for message in queue.receive(10)) == [1, 4]


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("{", "malformed|truncated"),
        ('{"payload": 1, "unique_for": "5m"}', "unique_for '5m' needs an id"),
        ('{"payload": 1, "id": "a", "unique_for": 0}', "is not above 0 seconds"),
        ('{"payload": 1, "id": "a", "unique_for": 5, "on_conflict": "replace"}', "give one of them"),
        ("hello", "malformed"),
        ("[1]", "Expected `object`, got `array`"),
        ("{}", "missing required field `payload`"),
        ('{"payload": 1, "dely": "1s"}', "unknown field `dely`"),
        ('{"payload": 1} {"payload": 2}', "trailing characters"),
        ('{"payload": 1, "delay": -1}', "-1"),
        ('{"payload": 1, "delay": "soon"}', "'soon' is not a duration"),
        ('{"payload": 1, "delay": true}', r"Expected `float \| str \| null`, got `bool`"),
        ('{"payload": 1, "at": "2026-12-24T18:00"}', "no time zone"),
        ('{"payload": 1, "delay": 1, "at": "2026-12-24T18:00Z"}', "give one of them"),
        ('{"payload": 1, "id": ""}', "must not be empty"),
        ('{"payload": 1, "id": 7}', "Expected `str"),
        ('{"payload": 1, "max_retries": -1}', "max_retries -1"),
        ('{"payload": 1, "on_conflict": "merge"}', "merge"),
        ('{"payload": 1, "headers": {"a": []}}', "headers"),
        ('{"payload": "\\ud800"}', "truncated|malformed|surrogate"),
        ('{"payload": "' + "x" * 1024 * 1024 + '"}', "at most 1,048,576 are allowed"),
    ],
)
def test_malformed_line_is_named_and_the_lines_before_it_are_sent(
    line: str, named: str, invoke: Invoke, queue: Queue, write: Write
):
    write([*numbered(700), line, *numbered(5, first=1000)])
    result = invoke("send", "emails", "--file", "emails.jsonl")
    assert result.exit_code == 2
    assert result.stderr.startswith("delayq: emails.jsonl, line 701: ")
    assert result.stderr.count("\n") == 1
    assert re.search(named, result.stderr)
    assert result.stderr.endswith(
        "; 700 messages sent before that; continue with --resume, which sends nothing twice\n"
    )
    assert numbers(queue) == list(range(700))


def test_malformed_line_of_a_stream_is_the_one_to_continue_with(invoke: Invoke, queue: Queue):
    for lines, expected in (
        {'{"payload": 1}\n\n{\n': "1 message sent before that; continue with line 2", "{\n": "nothing was sent"}
    ).items():
        result = invoke("send", "emails", "--file", "-", input=lines)
        assert result.exit_code == 2
        assert result.stderr.endswith(f"; {expected}\n")
    assert numbers(queue) == [1]


def test_file_with_a_malformed_first_line_sends_nothing(invoke: Invoke, redis_client: redis.Redis, write: Write):
    for lines in (["oops"], [], [""], [{"payload": 1, "id": ""}]):
        write(lines)
        invoke("send", "emails", "--file", "emails.jsonl")
        assert set(redis_client.scan_iter()) <= {b"delayq:{emails}:meta", b"delayq:queues"}


def test_duplicate_that_is_an_error_is_reported_with_its_line(invoke: Invoke, queue: Queue, write: Write):
    queue.send("old", id="order-3")
    write([*numbered(2), {"payload": 2, "id": "order-3", "on_conflict": "error"}, *numbered(2, first=3)])
    result = invoke("send", "emails", "--file", "emails.jsonl")
    assert result.exit_code == 1
    assert result.stderr.startswith("delayq: emails.jsonl, line 3: message id 'order-3' exists already")
    assert queue.stats().pending == 3
    assert invoke("send", "emails", "--file", "emails.jsonl", "--resume").exit_code == 0
    assert queue.stats().pending == 5


def test_lines_come_from_stdin_and_leave_no_checkpoint(invoke: Invoke, queue: Queue, redis_client: redis.Redis):
    done = invoke("send", "emails", "--file", "-", input='{"payload": 1}\r\n\n{"payload": 2}')
    assert done.exit_code == 0
    assert numbers(queue) == [1, 2]
    assert redis_client.keys("*:file:*") == []


def test_file_is_read_no_further_than_what_is_sent():
    class Counting:
        lines = 0

        def readline(self, _limit: int) -> bytes:
            self.lines += 1
            return b'{"payload": 1}\n'

    endless = Counting()
    sender = file.FileSender(Queue("unused"), "endless")
    assert len(next(file.batches(sender.entries(endless)))) == send.MAX_SENT
    assert endless.lines == send.MAX_SENT + 1


def test_batch_fits_in_one_call():
    line = json_lines.JsonLine("f", 1, 0, "", b"x" * 200_000)
    entries = [file.FileMessage(line, Outgoing(None, id=str(number))) for number in range(7)]
    assert [len(batch) for batch in file.batches(iter(entries))] == [2, 2, 2, 1]
    assert file.MAX_BYTES <= UP_BYTES


@pytest.mark.parametrize(
    "line",
    [
        '{"payload":1,"headers":{' + ",".join(f'"h{n:03}":1.5' for n in range(470)) + "}}",
        '{"payload":{"text":"' + 5180 * "x" + '"},"task":"t","results":60}',
    ],
    ids=["headers", "results"],
)
def test_batch_whose_envelopes_are_longer_than_its_lines_takes_one_call(
    invoke: Invoke, queue: Queue, redis_client: redis.Redis, write: Write, line: str
):
    queue.configure(max_retries=1_000_000)
    write([line] * send.MAX_SENT)
    assert (len(line) + 1) * send.MAX_SENT <= file.MAX_BYTES
    result = invoke("send", "emails", "--file", "emails.jsonl", "--json")
    assert (result.exit_code, json.loads(result.stdout)["sent"]) == (0, send.MAX_SENT)
    assert sum(map(redis_client.strlen, redis_client.scan_iter("delayq:{emails}:msg:*"))) > UP_BYTES


def test_endless_line_is_refused_before_it_fills_the_memory(
    invoke: Invoke, write: Write, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(json_lines, "MAX_LINE_BYTES", 1000)
    write([{"payload": 1}, {"payload": "x" * 5000}])
    result = invoke("send", "emails", "--file", "emails.jsonl")
    assert result.exit_code == 2
    assert "emails.jsonl, line 2: longer than 1,000 bytes" in result.stderr


@pytest.mark.full
@pytest.mark.parametrize("terminal", [True, False])
def test_slow_file_gets_a_progress_bar_on_a_terminal_only(terminal: bool, start: Start, queue: Queue):
    control, end = pty.openpty()
    stderr = end if terminal else subprocess.PIPE
    sender = start("send", "emails", "--file", "-", stdin=subprocess.PIPE, stderr=stderr)
    os.close(end)
    assert sender.stdin is not None
    sender.stdin.write('{"payload": 1}\n' * 600)
    sender.stdin.flush()
    assert eventually(lambda: queue.stats().pending > 0)  # it has started, and the time before the bar appears runs
    time.sleep(progress.PATIENCE)
    sender.stdin.write('{"payload": 1}\n' * 600)
    sender.stdin.close()
    shown = read_all(control)
    assert sender.wait(SECONDS) == 0
    assert ("sending stdin" in (shown if sender.stderr is None else sender.stderr.read())) == terminal


@pytest.mark.parametrize("room", [1, 100, 149])
def test_file_that_a_full_queue_refuses_is_continued_where_it_stopped(
    invoke: Invoke, queue: Queue, write: Write, room: int
):
    write([{"payload": number} for number in range(250)])
    queue.configure(max_length=room)
    result = invoke("send", "emails", "--file", "emails.jsonl")
    assert result.exit_code == 1
    count = "1 message" if room == 1 else f"{room} messages"
    assert (
        f"emails.jsonl, line {room + 1} was not sent: queue emails is full, with max_length {room}: wait until "
        f"messages have been handled, or configure a higher max_length; {count} sent before that; "
        "continue with --resume, which sends nothing twice"
    ) in " ".join(result.stderr.split())
    assert invoke("send", "emails", "--file", "emails.jsonl", "--resume").exit_code == 1  # there is no room yet
    handled = [message.payload for message in queue.receive(500)]
    assert queue.ack(queue.receive(500)) == []
    queue.configure(max_length=None)
    assert invoke("send", "emails", "--file", "emails.jsonl", "--resume").exit_code == 0
    handled += [message.payload for message in queue.receive(500)]
    assert sorted(handled) == list(range(250))


def test_stream_that_a_full_queue_refuses_says_with_which_line_to_continue(invoke: Invoke, queue: Queue):
    queue.configure(max_length=3)
    text = "".join(f'{{"payload": {number}}}\n' for number in range(5))
    result = invoke("send", "emails", "--file", "-", input=text)
    assert result.exit_code == 1
    assert "stdin, line 4 was not sent" in result.stderr
    assert "3 messages sent before that; continue with line 4" in " ".join(result.stderr.split())
    result = invoke("send", "emails", "one more")
    assert (result.exit_code, "queue emails is full, with max_length 3" in result.stderr) == (1, True)
