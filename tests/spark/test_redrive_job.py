"""Redrive dead letters chosen by SQL, edited by functions."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from delayq.cli import main
from pyspark.sql import SparkSession

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.spark.jobs.redrive import count_errors, dead_letters, redrive
from delayq.spark.redis_options import RedisOptions
from tests.harness.servers import RedisServer
from tests.harness.spark.kept import assert_whole


@pytest.fixture
def server(redis_server: RedisServer) -> RedisOptions:
    return RedisOptions(redis_server.url)


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("emails", url=redis_server.url, shards=2) as queue:
        yield queue


def bury(queue: Queue, error: str, **payloads: Any) -> None:
    """Send messages with these ids and let them die of an error."""
    queue.send_many([Outgoing(payload, id=id, headers={"try": b"\x01"}) for id, payload in payloads.items()])
    left = len(payloads)
    while left:
        for message in queue.receive(left):
            message.reject("failed", error=error)
            left -= 1


def dead(queue: Queue) -> list[str]:
    return sorted(info.id for info in queue.dead.list(1000))


def pending(queue: Queue) -> dict[str, Any]:
    return {info.id: info.payload for info in queue.peek("pending", 1000)}


def test_dead_letters_that_match_the_condition_are_redriven(spark: SparkSession, server: RedisOptions, queue: Queue):
    bury(queue, "read timeout", a={"n": 1}, b=b"\xff")
    bury(queue, "no such user", c=1)
    report = redrive(spark, server, "emails", "error LIKE '%timeout%' AND attempts = 1", delay=60)
    assert (report.chosen, report.sent, report.gone, report.failed) == (2, 2, 0, 0)
    assert pending(queue) == {"a": {"n": 1}, "b": b"\xff"}
    assert dead(queue) == ["c"]
    assert queue.stats().requeued == 2
    assert redrive(spark, server, "emails").sent == 1
    assert_whole(queue)


def mend(letter: dict[str, Any]) -> dict[str, Any] | None:
    """Edit each dead letter in a different way, depending on its id."""
    assert letter["error"] == "broken"
    assert letter["headers"] == {"try": b"\x01"}
    if letter["id"] == "fails":
        raise KeyError("no address")
    if letter["id"] == "unknown":
        return {"delay": 5}
    changes: dict[str, Callable[[Any], dict[str, Any]]] = {
        "json": lambda payload: {"payload": payload | {"fixed": True}},
        "raw": lambda payload: {"payload": payload + b"!"},
        "headers": lambda _: {"headers": {"try": 2}},
        "both": lambda _: {"payload": "new", "headers": {}},
        "large": lambda _: {"payload": bytes(2_000_000)},
        "same": lambda _: {},
    }
    change = changes.get(letter["id"])
    return change(letter["payload"]) if change else None


def test_function_edits_each_dead_letter_before_its_redrive(spark: SparkSession, server: RedisOptions, queue: Queue):
    plain = dict.fromkeys(("headers", "both", "same", "none", "large", "fails", "unknown"), "old")
    bury(queue, "broken", json={"to": "a"}, raw=b"\xff", **plain)
    report = redrive(spark, server, "emails", "reason = 'failed'", mend)
    assert (report.sent, report.failed) == (6, 3), report
    assert sorted(reason.partition(":")[0] for reason in report.reasons) == [
        "KeyError",
        "ValueError",
        "the payload takes 2,000,000 bytes",
    ]
    assert pending(queue) == {
        "json": {"to": "a", "fixed": True},
        "raw": b"\xff!",
        "headers": "old",
        "both": "new",
        "same": "old",
        "none": "old",
    }
    found = {info.id: info.headers for info in queue.peek("pending")}
    assert (found["headers"], found["both"], found["raw"]) == ({"try": 2}, {}, {"try": b"\x01"})
    assert dead(queue) == ["fails", "large", "unknown"]
    assert_whole(queue)


def add_tenant(letter: dict[str, Any]) -> dict[str, Any]:
    assert letter["headers"] == {"h": "x"}
    return {"headers": letter["headers"] | ({"delayq-slot": 1} if letter["id"] == "fake" else {"tenant": "acme"})}


def test_edit_neither_changes_nor_adds_headers_of_delayq(spark: SparkSession, server: RedisOptions, queue: Queue):
    queue.schedules.add("tick", "@daily", headers={"h": "x"})
    queue.schedules.run_now("tick")
    queue.send("x", id="fake", headers={"h": "x"})
    for message in queue.receive():
        message.reject("failed")
    report = redrive(spark, server, "emails", "headers['delayq-schedule'] IS NULL", add_tenant)
    assert (report.sent, report.failed) == (1, 1)
    assert "header 'delayq-slot' is reserved" in str(report.reasons)
    assert [each.headers for each in queue.peek("pending", 10) if each.slot is None] == [{"h": "x", "tenant": "acme"}]
    assert {each.schedule for each in queue.peek("pending", 10)} == {"tick"}
    assert dead(queue) == ["fake"]


class Silent(Exception):
    """An error whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("silent")


def hostile(letter: dict[str, Any]) -> dict[str, Any] | None:
    """Fail in an unusual way, depending on the id."""
    errors = {"exits": SystemExit(3), "silent": Silent(), "surrogate": ValueError("no file caf\udce9")}
    if letter["id"] in errors:
        raise errors[letter["id"]]
    headers: dict[str, dict[str, Any]] = {"name": {"caf\udce9": "x"}, "value": {"x": "caf\udce9"}}
    return {"headers": headers[letter["id"]]} if letter["id"] in headers else None


def test_failing_edit_does_not_hold_up_others(spark: SparkSession, server: RedisOptions, queue: Queue):
    bury(queue, "broken", **dict.fromkeys(("a", "exits", "m", "name", "silent", "surrogate", "value", "z"), "old"))
    report = redrive(spark, server, "emails", edit=hostile)
    assert (report.sent, report.failed) == (3, 5), report
    assert {"SystemExit: 3", "Silent", "ValueError: no file caf\\udce9"} <= report.reasons.keys()
    assert dead(queue) == ["exits", "name", "silent", "surrogate", "value"]
    assert_whole(queue)


def test_dead_letter_that_died_again_after_it_was_read_is_left_alone(
    spark: SparkSession, redis_server: RedisServer, server: RedisOptions, queue: Queue
):
    bury(queue, "first", a=1, b=1)
    url = redis_server.url

    def meanwhile(letter: dict[str, Any]) -> dict[str, Any] | None:
        if letter["id"] == "b":
            return None
        with Queue("emails", url=url, shards=2) as there:
            there.dead.requeue("a")
            while there.get("a").state != "dead":  # type: ignore[union-attr]  # it is there
                for message in there.receive():
                    message.reject("failed", error="second") if message.id == "a" else message.release()
        return {"payload": "too late"}

    report = redrive(spark, server, "emails", edit=meanwhile)
    assert (report.sent, report.gone) == (1, 1)
    (left,) = queue.dead.list()
    assert (left.id, left.payload, left.error) == ("a", 1, "second")
    assert_whole(queue)


def kill_once(flag: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return an edit that kills its task in the middle the first time."""

    def edit(letter: dict[str, Any]) -> dict[str, Any]:
        if letter["payload"] == 250 and flag.exists():
            flag.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"payload": -letter["payload"]}

    return edit


def test_task_killed_in_the_middle_sends_nothing_twice_and_loses_nothing(
    spark: SparkSession, server: RedisOptions, queue: Queue, tmp_path: Path
):
    bury(queue, "broken", **{f"m{n:03}": n for n in range(300)})
    flag = tmp_path / "kill"
    flag.touch()
    report = redrive(spark, server, "emails", edit=kill_once(flag), rate=100_000)
    assert not flag.exists()
    assert (report.gone, report.failed) == (0, 0)
    assert 0 < report.sent < 300  # not counting those that the killed task had sent
    assert pending(queue) == {f"m{n:03}": -n for n in range(300)}
    assert queue.stats().requeued == 300
    assert_whole(queue)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("errors LIKE 'x'", r"the condition \"errors LIKE 'x'\".*Dead letters have id, queue"),
        ("error LIKE", "the condition 'error LIKE'"),
        ("attempts", "the condition 'attempts'.*not a boolean"),
    ],
)
def test_invalid_condition_is_refused_with_the_reason(
    spark: SparkSession, server: RedisOptions, queue: Queue, where: str, why: str
):
    bury(queue, "broken", a=1)
    with pytest.raises(InvalidInput, match=why):
        redrive(spark, server, "emails", where)
    assert dead(queue) == ["a"]


@pytest.mark.parametrize("bad", [{"delay": -1}, {"rate": 0}, {"edit": "mend"}])
def test_argument_out_of_range_is_refused(spark: SparkSession, server: RedisOptions, bad: dict[str, Any]):
    with pytest.raises(InvalidInput, match=next(iter(bad))):
        redrive(spark, server, "emails", **bad)


def test_queue_without_dead_letters_has_nothing_to_redrive(spark: SparkSession, server: RedisOptions, queue: Queue):
    queue.send(1)
    assert redrive(spark, server, "emails", "attempts > 0").chosen == 0
    assert count_errors(dead_letters(spark, server, "emails")) == (0, {})


def test_dead_letters_are_counted_by_error(spark: SparkSession, server: RedisOptions, queue: Queue):
    bury(queue, "broken", a=1, b=2)
    bury(queue, "", c=3)
    assert count_errors(dead_letters(spark, server, "emails")) == (3, {"broken": 2, "failed": 1})
    assert dead(queue) == ["a", "b", "c"]


@pytest.mark.usefixtures("spark")
def test_command_counts_and_redrives(
    queue: Queue, redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bury(queue, "broken", a=1, b=2)
    (tmp_path / "mending.py").write_text(
        "def mend(letter):\n    assert letter['payload'] == 1, 'only ones'\n    return {'payload': 'new'}\n"
    )
    monkeypatch.chdir(tmp_path)
    invoke = CliRunner(env={"DELAYQ_URL": redis_server.url}).invoke
    tried = invoke(main, ["pipeline", "redrive", "emails", "--where", "attempts = 1", "--dry-run"])
    assert (tried.exit_code, tried.stdout) == (0, "would requeue 2 dead letters\n  2 × broken\n")
    done = invoke(main, ["pipeline", "redrive", "emails", "--edit", "mending:mend", "--rate", "100/s"])
    assert (done.exit_code, done.stdout) == (1, "requeued 1 of 2 matching dead letters of emails\n")
    assert "not requeued: 1, because the edit failed:\n  1 × AssertionError: only ones" in done.stderr
    assert pending(queue) == {"a": "new"}
    wrong = invoke(main, ["pipeline", "redrive", "emails", "--where", "nothing > 1"])
    assert (wrong.exit_code, "the condition 'nothing > 1'" in wrong.stderr) == (2, True)
    document = json.loads(invoke(main, ["pipeline", "redrive", "emails", "--json"]).stdout)
    assert document == {"queue": "emails", "chosen": 1, "sent": 1, "gone": 0, "failed": 0, "reasons": {}}
