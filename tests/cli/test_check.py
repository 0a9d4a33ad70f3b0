"""check: which of a queue's messages the code at hand would fail."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Consumer, Outgoing, Queue
from delayq.model import misfit
from delayq.operations.bulk.check import check_messages
from tests.cli.conftest import Invoke

SECRET = "4242-4242"
CODE = """
import enum
from dataclasses import dataclass
from pydantic import BaseModel
from delayq{face} import Queue

emails = Queue("emails", shards=None)

class Colour(enum.Enum):
    RED = "red"

@dataclass
class Card:
    number: str
    def __post_init__(self):
        if self.number.startswith("4242"):
            raise ValueError(f"bad card {{self.number}}")

class Customer(BaseModel):
    name: str
    age: int
    counts: dict[str, int] = {{}}

@emails.task
{word}def welcome(user_id: int, *, colour: Colour = Colour.RED, card: Card | None = None) -> None:
    raise AssertionError("no task runs")

@emails.task
{word}def bill(customer: Customer) -> None:
    raise AssertionError("no task runs")

@emails.handler
{word}def deliver(numbers: list[int]) -> None:
    raise AssertionError("no handler runs")
"""


def sent(queue: Queue) -> None:
    """Send messages of several states; the code fails all but two of them."""
    queue.send({"user_id": "x", "colour": SECRET}, task="welcome", id="type", delay=60)
    queue.send({"user_id": 1, "colour": SECRET}, task="welcome", id="enum", delay=60)
    queue.send({"user_id": 1, "card": {"number": SECRET}}, task="welcome", id="own-check")
    queue.send({"user_id": 1, "colours": SECRET}, task="welcome", id="unknown-field")
    queue.send({"customer": {"name": "Ann", "age": SECRET}}, task="bill", id="model")
    queue.send({"customer": {"name": "Ann", "age": 1, "counts": {"SECRETKEY": "x"}}}, task="bill", id="key")
    queue.send({"user_id": 1, SECRET: 1}, task="welcome", id="unknown-key")
    queue.send([1, 2, SECRET], id="third", delay=3600)
    queue.send([SECRET], id="first", delay=3600)
    queue.send({"user_id": 1}, task="gone", id="gone-1", delay=60)
    queue.send({"user_id": 1}, task="gone", id="gone-2")
    queue.dead.bury("gone-2")
    queue.send({"user_id": 2}, task="welcome", id="good")
    queue.send([1, 2], id="good-too", delay=60)
    queue.send([SECRET], id="expires", expires_in=0.001)


EXPECTED = [
    ("waiting", "payload-mismatch", None, "$[...]", "Expected `int`, got `str`", ["first", "third"]),
    ("waiting", "payload-mismatch", "bill", "$.customer.age", "int_parsing", ["model"]),
    ("waiting", "payload-mismatch", "bill", "$.customer.counts[...]", "int_parsing", ["key"]),
    ("waiting", "payload-mismatch", "welcome", "$[...]", "Object contains unknown field", ["unknown-key"]),
    ("waiting", "payload-mismatch", "welcome", "$.user_id", "Expected `int`, got `str`", ["type"]),
    ("waiting", "payload-mismatch", "welcome", "$.colour", "Invalid enum value", ["enum"]),
    ("waiting", "payload-mismatch", "welcome", "$.card", "refused by the type's own check (ValueError)", ["own-check"]),
    ("waiting", "payload-mismatch", "welcome", "$.colours", "Object contains unknown field", ["unknown-field"]),
    ("waiting", "unknown-task", "gone", None, None, ["gone-1"]),
    ("dead", "unknown-task", "gone", None, None, ["gone-2"]),
]


def rows(document: dict[str, Any]) -> set[Any]:
    names = ("where", "reason", "task", "field", "problem")
    return {(*(each[name] for name in names), tuple(sorted(each["samples"]))) for each in document["misfits"]}


@pytest.mark.parametrize(("face", "word"), [("", ""), (".aio", "async ")])
def test_messages_that_the_code_would_fail_are_counted_by_task_and_field(
    face: str, word: str, invoke: Invoke, queue: Queue, redis_client: redis.Redis, tmp_path: Path
):
    (tmp_path / "app.py").write_text(CODE.format(face=face, word=word))
    sent(queue)
    before = {key: redis_client.dump(key) for key in redis_client.keys("delayq:{emails}:*")}
    done = invoke("check", "app:emails", "--json")
    assert done.exit_code == 1, done.stderr
    document = json.loads(done.stdout)
    assert rows(document) == {(*row[:-1], tuple(row[-1])) for row in EXPECTED}
    assert (document["looked_at"], document["failing"]) == (14, 11)
    assert document["misfits"][0]["count"] == 2
    assert {key: redis_client.dump(key) for key in redis_client.keys("delayq:{emails}:*")} == before
    table = invoke("check", "app:emails", env={"COLUMNS": "300"})
    assert table.exit_code == 1
    assert table.stdout.splitlines()[0].split() == [
        *("count", "reason", "task", "field", "problem", "state", "examples")
    ]
    assert table.stdout.splitlines()[-1] == "queue emails: looked at 14 messages, 11 of them would fail"
    assert SECRET not in done.stdout + done.stderr + table.stdout + table.stderr


def test_consumer_of_the_same_code_decides_the_same(invoke: Invoke, queue: Queue, tmp_path: Path):
    """What `check` predicts is what a consumer does: they use the same code."""
    (tmp_path / "app.py").write_text(CODE.format(face="", word="").replace('raise AssertionError("no', 'print("no'))
    sent(queue)
    predicted = json.loads(invoke("check", "app:emails", "--json").stdout)["misfits"]
    fails = {id: each["reason"] for each in predicted for id in each["samples"]}
    queue.now([each.id for state in ("pending", "ready") for each in queue.peek(state, limit=100)])
    assert invoke("consume", "app:emails", "--burst").exit_code == 0
    dead = {each.id: each.reason for each in queue.peek("dead", limit=100)}
    dead |= {each.id: "unknown-task" for each in queue.peek("retry", limit=100) if "UnknownTask" in (each.error or "")}
    dead["gone-2"] = "unknown-task"  # it was buried, and would be so after a requeue
    assert dead == fails


def test_code_that_handles_all_messages_exits_with_0(invoke: Invoke, queue: Queue, tmp_path: Path):
    (tmp_path / "app.py").write_text(CODE.format(face="", word=""))
    queue.send_many([Outgoing({"user_id": 1}, task="welcome"), Outgoing([1], delay=60)])
    done = invoke("check", "app:emails")
    assert (done.exit_code, done.stdout) == (0, "queue emails: looked at 2 messages, none of them would fail\n")


def test_queue_with_tasks_alone_reports_messages_and_occurrences_without_a_handler(
    invoke: Invoke, queue: Queue, tmp_path: Path
):
    queue.cron("@daily", name="nightly")(print)
    Consumer(queue).drain()
    queue.schedules.run_now("nightly")
    queue.send("for no task", id="plain")
    lines = "from delayq import Queue\nemails = Queue('emails')\n@emails.task\ndef welcome() -> None: ..."
    (tmp_path / "app.py").write_text(lines)
    document = json.loads(invoke("check", "app:emails", "--json").stdout)
    found = {(each["reason"], each["task"], each["count"]) for each in document["misfits"]}
    assert found == {("handler-missing", "nightly", 2), ("handler-missing", None, 1)}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["app:emails", "--prefix", "other"], "has the prefix of its Queue"),
        (["app:nothing"], "does not exist"),
        (["emails"], "is not MODULE:QUEUE"),
    ],
)
def test_wrong_words_are_refused_with_exit_code_2(words: list[str], error: str, invoke: Invoke, tmp_path: Path):
    (tmp_path / "app.py").write_text(CODE.format(face="", word=""))
    done = invoke("check", *words)
    assert (done.exit_code, error in done.stderr) == (2, True), done.stderr


def test_memory_is_bounded_however_many_messages_and_tasks(queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(misfit, "MOST_GROUPS", 50)
    queue.handler(print)

    @queue.task
    def known() -> None: ...

    def peak(count: int) -> tuple[int, int]:
        queue.purge()
        queue.send_many(Outgoing({"n": "x" * 200}, task=f"task-{number}") for number in range(count))
        seen: list[tuple[int, int]] = []
        tracemalloc.start()
        found = queue.execute(check_messages, queue.handlers.judge(), lambda done, total: seen.append((done, total)))
        used = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (found.looked_at, found.failing) == (count, count)
        assert seen[-1] == (count, count)
        assert all(len(each.samples) <= misfit.MOST_SAMPLES for each in found.misfits)
        return used, len(found.misfits)

    few, groups = peak(600)  # more than a page
    many, same = peak(1600)
    assert groups == same == 51
    assert many < 1.3 * few


def test_unreadable_envelope_is_counted(queue: Queue, redis_client: redis.Redis):
    queue.handler(print)
    queue.send("x", id="broken", delay=60)
    redis_client.set("delayq:{emails}:msg:broken", b"not an envelope")
    found = queue.execute(check_messages, queue.handlers.judge(), lambda *_: None)
    assert [(each.reason, each.samples) for each in found.misfits] == [("unreadable-envelope", ["broken"])]
