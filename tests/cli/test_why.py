"""why: why a message has not been delivered, on the command line."""

from __future__ import annotations

import json

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke


def test_sentence_is_printed_on_one_line(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42", delay=3600)
    result = invoke("why", "emails", "order-42")
    (line,) = result.stdout.splitlines()
    assert line.startswith("order-42 is not due until ")
    assert (result.exit_code, result.stderr) == (0, "")


def test_answer_is_printed_as_json(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42")
    document = json.loads(invoke("why", "emails", "order-42", "--json").stdout)
    assert (document["queue"], document["id"]) == ("emails", "order-42")
    assert document["why"].endswith("but no consumer of queue emails has ever been seen")


def test_missing_message_gets_an_answer_too(invoke: Invoke, queue: Queue):
    queue.send("payload")
    result = invoke("why", "emails", "nobody")
    assert result.stdout.startswith("nobody is not in queue emails: it was never sent, or is gone")
    assert result.exit_code == 0


def test_multiline_error_is_printed_on_one_line(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42")
    (message,) = queue.receive()
    message.nack(delay=60, error="Traceback:\n  line 1\nValueError: \x1b[2J")
    (line,) = invoke("why", "emails", "order-42").stdout.splitlines()
    assert "order-42 has failed once, the last time with Traceback: line 1 ValueError: \\x1b[2J, and" in line


@pytest.mark.parametrize("given", [["emails", ""], ["emails"], ["em{ails", "order-42"]])
def test_bad_input_is_a_usage_error(given: list[str], invoke: Invoke):
    assert invoke("why", *given).exit_code == 2
