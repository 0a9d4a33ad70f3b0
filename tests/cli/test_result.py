"""The results of tasks on the command line: kept by `send --results`, printed by `result`, `show` and `why`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

from delayq import Consumer, Queue
from tests.cli.conftest import Invoke, Start
from tests.cli.test_help import example
from tests.harness.lines import Write

SHOP = """
from delayq import Queue

orders = Queue("orders")

@orders.task
def price(item: str) -> list:
    return [item, 3]
"""


def price(item: str, *, amount: int = 1) -> int:
    return amount * {"tea": 3}[item]


def finish(queue: Queue) -> None:
    """Run what is due, by a consumer that knows the task."""
    with Queue(queue.name, redis=queue._executor.client) as known:
        known.task(price)
        Consumer(known).drain()


def sent(invoke: Invoke, *more: str, item: str = "tea") -> None:
    document = json.dumps({"item": item})
    done = invoke("send", "emails", document, "--task", "price", "--id", "a", "--results", "1h", *more)
    assert done.exit_code == 0, done.stderr


def test_value_is_printed_as_json(invoke: Invoke, queue: Queue):
    sent(invoke)
    early = invoke("result", "emails", "a")
    assert (early.exit_code, early.stdout) == (1, "")
    assert early.stderr == "delayq: the task of message a has not ended yet\n"
    finish(queue)
    done = invoke("result", "emails", "a")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "3\n", "")
    record = json.loads(invoke("result", "emails", "a", "--json").stdout)
    assert (record["status"], record["task"], record["arguments"]) == ("done", "price", {"item": "tea"})


def test_failure_prints_the_traceback_and_exits_with_1(invoke: Invoke, queue: Queue):
    sent(invoke, "--max-retries", "0", item="milk")
    finish(queue)
    done = invoke("result", "emails", "a")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("Traceback (most recent call last):\n")
    assert done.stderr.endswith("delayq: task 'price' of message a failed: retries-exhausted: KeyError: 'milk'\n"), (
        done.stderr
    )
    record = invoke("result", "emails", "a", "--json")
    assert (record.exit_code, json.loads(record.stdout)["error"][0]) == (0, "KeyError")


def test_message_without_a_result_is_named(invoke: Invoke, queue: Queue):
    queue.send("plain", id="b")
    for name, expected in (("b", "message b keeps no result"), ("nobody", "no result of message nobody is kept")):
        done = invoke("result", "emails", name)
        assert (done.exit_code, done.stdout) == (1, "")
        assert expected in done.stderr


def test_example_runs_beside_a_consumer(invoke: Invoke, start: Start, tmp_path: Path):
    (tmp_path / "shop.py").write_text(SHOP)
    start("consume", "shop:orders")
    lines = [shlex.split(line)[1:] for line in example(invoke("result", "--help").stdout).splitlines()]
    done = [invoke(*words) for words in lines]
    assert [each.exit_code for each in done] == [0, 0], done[-1].stderr
    assert done[-1].stdout == '["tea",3]\n'


def test_results_need_a_task_and_a_valid_time(invoke: Invoke):
    for words, expected in (
        (["--results", "1h"], "--task"),
        (["--results", "0", "--task", "price"], "not between 0.001 s and 366 days"),
        (["--results", "367d", "--task", "price"], "not between 0.001 s and 366 days"),
    ):
        done = invoke("send", "emails", "{}", *words)
        assert (done.exit_code, expected in done.stderr) == (2, True), done.stderr


def test_line_of_a_file_may_keep_a_result(invoke: Invoke, queue: Queue, write: Write):
    line = {"payload": {"item": "tea"}, "task": "price", "results": "1h", "id": "a"}
    path = write([line])
    assert invoke("send", "emails", "--file", str(path)).exit_code == 0
    finish(queue)
    assert invoke("result", "emails", "a").stdout == "3\n"


def test_show_has_the_result_of_a_message_that_is_gone(invoke: Invoke, queue: Queue):
    sent(invoke)
    assert json.loads(invoke("show", "emails", "a", "--json").stdout)["result"] is None
    finish(queue)
    shown = invoke("show", "emails", "a")
    assert shown.exit_code == 0
    words = " ".join(shown.stdout.split())
    assert "state gone; its result is kept" in words
    assert 'task price arguments {"item":"tea"}' in words
    assert "result done started" in words
    assert words.endswith("value 3")
    known = json.loads(invoke("show", "emails", "a", "--json").stdout)
    assert (known["state"], known["result"]["value"]) == (None, 3)


def test_show_has_the_last_attempt_of_a_message_that_waits(invoke: Invoke, queue: Queue):
    sent(invoke, item="milk")
    finish(queue)
    shown = invoke("show", "emails", "a").stdout
    assert "result          retry\n" in shown
    assert "Traceback" in shown
    assert shown.count("KeyError: 'milk'") == 2


def test_show_of_a_later_message_has_no_result_of_an_earlier_one(invoke: Invoke, queue: Queue):
    sent(invoke)
    finish(queue)
    sent(invoke)
    known = json.loads(invoke("show", "emails", "a", "--json").stdout)
    assert (known["state"], known["result"]) == ("pending", None)


def test_why_of_a_message_that_is_gone_says_how_its_task_ended(invoke: Invoke, queue: Queue):
    sent(invoke)
    finish(queue)
    assert " by attempt 1: task price has ended; its result is kept until " in invoke("why", "emails", "a").stdout
    sent(invoke, "--max-retries", "0", item="milk")
    finish(queue)
    queue.purge("dead")
    queue.collect_garbage()
    why = invoke("why", "emails", "a").stdout
    assert "is gone; a message with this id became a dead letter at " in why
    assert "with the reason: retries-exhausted: KeyError: 'milk'; its result is kept until " in why
