"""cancel, reschedule, now, pause, resume, purge, and requeueing dead letters."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest
import redis
from click.testing import Result
from delayq.cli import app, manage, options
from delayq.cli.formats import show_date

from delayq import Queue
from delayq.model.actions import Action, CommandText, Field, Words
from delayq.model.delivery import Outgoing
from tests.cli.conftest import Invoke
from tests.harness.servers import RedisServer


def kill(queue: Queue, ids: Sequence[str]) -> None:
    """Send messages and let them die."""
    queue.send_many([Outgoing("payload", id=id_) for id_ in ids])
    while messages := queue.receive(max_messages=500):
        for message in messages:
            message.reject("killed")


def test_cancelled_message_is_gone_and_a_second_cancel_fails(invoke: Invoke, queue: Queue):
    queue.send("payload", delay=60, id="order-42")
    assert invoke("cancel", "emails", "order-42").stdout == "cancelled order-42\n"
    again = invoke("cancel", "emails", "order-42")
    assert (again.exit_code, again.stdout) == (1, "")
    assert again.stderr == "delayq: message 'order-42' is not in the queue\n"
    assert queue.stats().cancelled == 1


@pytest.mark.parametrize("words", ["pause Q", "configure Q --rate 9/s", "send Q payload", "cron add Q nightly @daily"])
def test_new_queue_with_a_name_much_like_another_is_questioned(words: str, invoke: Invoke, queue: Queue):
    queue.send("payload")

    def call(name: str, *options: str) -> Result:
        return invoke(*words.replace("Q", name).split(), *options)

    done = call("emials")
    undo = "to undo this, empty it and run delayq queue remove emials; --create turns off this warning"
    assert (done.exit_code, done.stderr) == (0, f"queue emials is new: did you mean emails? ({undo})\n")
    for name in ("emials", "emails", "orders"):
        assert call(name).stderr == ""
    assert call("emai1s", "--create").stderr == ""


@pytest.mark.parametrize("shards", [1, 3])
def test_only_an_empty_queue_is_removed(shards: int, invoke: Invoke, server: RedisServer, redis_client: redis.Redis):
    with Queue("emials", url=server.url, shards=shards) as queue:
        queue.send("payload", id="order-42")
        queue.configure(events=True)
        kept = invoke("queue", "remove", "emials", "--yes")
        assert kept.exit_code == 1
        assert (
            "queue emials holds 1 message: let consumers finish, or discard waiting messages with delayq purge"
            in kept.stderr
        )
        (message,) = queue.receive()
        assert invoke("queue", "remove", "emials", "--yes").exit_code == 1
        message.ack()
        queue.purge()
        assert invoke("queue", "remove", "emials", "--yes").stdout == "removed emials\n"
        left = redis_client.keys("delayq:{emials*")  # for three minutes, for programs that still use the queue
        removed = [shard.keys.removed for shard in queue._context.shards]
        assert len(left) == redis_client.exists(*removed) == shards
        assert all(redis_client.pttl(key) > 0 for key in removed)
    assert invoke("stats").stderr == "no queues\n"


def test_missing_queue_is_not_reported_as_removed(invoke: Invoke, queue: Queue):
    queue.send("payload")
    done = invoke("queue", "remove", "emials", "--yes")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == "delayq: queue emials does not exist: delayq queue list shows the names of all queues\n"


def test_running_message_is_not_cancelled_but_not_retried_either(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42")
    (message,) = queue.receive()
    result = invoke("cancel", "emails", "order-42")
    assert result.exit_code == 1
    assert "is being handled now: it will not be retried" in result.stderr
    message.nack()
    assert queue.get("order-42") is None


def test_received_message_cannot_be_stopped_and_a_waiting_one_is_cancelled(invoke: Invoke, queue: Queue):
    queue.send("payload", id="order-42")
    queue.receive()
    result = invoke("cancel", "emails", "order-42", "--running")
    assert result.exit_code == 1
    assert "is being handled now: a program that called receive has it, and cannot be stopped" in result.stderr
    queue.send("payload", delay=60, id="order-43")
    assert invoke("cancel", "emails", "order-43", "--running").stdout == "cancelled order-43\n"


@pytest.mark.parametrize(("id_", "outcome", "code"), [("waits", "cancelled", 0), ("nobody", "unknown", 1)])
def test_outcome_of_a_cancel_is_printed_as_json(id_: str, outcome: str, code: int, invoke: Invoke, queue: Queue):
    queue.send("payload", delay=60, id="waits")
    result = invoke("cancel", "emails", id_, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (code, {"id": id_, "outcome": outcome})


@pytest.mark.parametrize("words", [["--delay", "2h"], ["--at", "2046-01-01T00:00Z"]])
def test_rescheduled_message_has_the_new_time(words: list[str], invoke: Invoke, queue: Queue):
    sent = queue.send("payload", delay=60, id="order-42")
    result = invoke("reschedule", "emails", "order-42", *words)
    info = queue.get("order-42")
    assert info is not None
    assert info.due_at is not None
    assert info.due_at > sent.due_at
    assert re.match(rf"rescheduled order-42, due in .+ \({info.due_at:%Y-%m-%d}", result.stdout)


@pytest.mark.parametrize(
    ("id_", "outcome", "named"),
    [
        ("runs", "in_flight", "is being handled now"),
        ("dead", "dead", "is already dead"),
        ("nobody", "unknown", "is not in"),
    ],
)
def test_only_a_waiting_message_is_rescheduled(id_: str, outcome: str, named: str, invoke: Invoke, queue: Queue):
    kill(queue, ["dead"])
    queue.send("payload", id="runs")
    queue.receive()
    result = invoke("reschedule", "emails", id_, "--delay", "1s")
    assert result.exit_code == 1
    assert f"{id_!r} {named}" in result.stderr
    done = invoke("reschedule", "emails", id_, "--delay", "1s", "--json")
    assert (done.exit_code, json.loads(done.stdout)["outcome"]) == (1, outcome)


def test_waiting_messages_are_due_now(invoke: Invoke, queue: Queue):
    kill(queue, ["dead"])
    queue.send_many([Outgoing("payload", id=id_, delay=3600) for id_ in ("a", "b")])
    done = invoke("now", "emails", "a", "b")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "a is due now\nb is due now\n", "")
    assert sorted(message.id for message in queue.receive()) == ["a", "b"]
    mixed = invoke("now", "emails", "a", "dead", "nobody")
    assert (mixed.exit_code, mixed.stdout) == (1, "")
    assert mixed.stderr.splitlines() == [
        "message 'a' is being handled now: its due time is unchanged",
        "message 'dead' is already dead: use delayq dead requeue instead",
        "message 'nobody' is not in the queue",
    ]
    queue.send("payload", id="c", delay=3600)
    result = invoke("now", "emails", "c", "dead", "--json")
    lines = [*map(json.loads, result.stdout.splitlines())]
    assert (result.exit_code, [(each["id"], each["outcome"]) for each in lines]) == (
        1,
        [("c", "rescheduled"), ("dead", "dead")],
    )


def test_paused_queue_delivers_nothing_until_it_is_resumed(invoke: Invoke, queue: Queue):
    queue.send("payload")
    assert invoke("pause", "emails").stdout == "paused emails\n"
    assert queue.receive() == []
    assert "paused since" in invoke("stats", "emails").stdout
    assert invoke("resume", "emails").stdout == "resumed emails\n"
    assert len(queue.receive()) == 1


def test_pause_for_a_time_prints_its_end_and_a_new_pause_replaces_it(invoke: Invoke, queue: Queue):
    queue.send("payload")
    text = invoke("pause", "emails", "--for", "10m").stdout
    until = queue.stats().paused_until
    assert until is not None
    assert text == f"paused emails until {show_date(until)}\n"
    assert re.search(r"^paused until +in (10m|9m \d+s) \(20", invoke("stats", "emails").stdout, re.MULTILINE)
    assert re.search(r"paused, resumes in (10m|9m)", invoke("stats").stdout)
    assert invoke("pause", "emails").stdout == "paused emails\n"
    assert queue.stats().paused_until is None


@pytest.mark.parametrize("length", ["0s", "367d"])
def test_length_of_a_pause_is_checked_before_the_queue_is_created(invoke: Invoke, length: str):
    refused = invoke("pause", "emails", "--for", length)
    said = f"'--for': '{length}' is not between 1ms and 366d: leave out --for to pause until delayq resume"
    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.stderr
    assert invoke("queue", "list").stdout == ""


def test_buried_messages_are_dead_letters_and_others_are_exit_code_1(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("payload", delay=60, id=id_) for id_ in ("a", "b", "c")])
    assert invoke("dead", "bury", "emails", "a", "b", "--reason", "unwanted").stdout == "buried a\nburied b\n"
    assert {info.id: info.reason for info in queue.dead.list()} == {"a": "unwanted", "b": "unwanted"}
    again = invoke("dead", "bury", "emails", "a", "c")
    assert (again.exit_code, again.stdout, again.stderr) == (1, "buried c\n", "message 'a' is already dead\n")
    result = invoke("dead", "bury", "emails", "d", "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (1, {"id": "d", "outcome": "unknown"})


def test_purge_discards_the_given_states(invoke: Invoke, queue: Queue):
    kill(queue, ["dead-1", "dead-2"])
    queue.send_many([Outgoing("payload", delay=60)] * 3)
    assert invoke("purge", "emails", "--state", "dead", "--yes").stdout == "purged 2 messages\n"
    assert queue.stats().pending == 3
    assert json.loads(invoke("purge", "emails", "--yes", "--json").stdout) == {"purged": 3}
    stats = queue.stats()
    assert (stats.inside, stats.purged, stats.missing) == (0, 5, 0)


def test_purge_keeps_running_messages(invoke: Invoke, queue: Queue):
    queue.send_many([Outgoing("payload")] * 2)
    queue.receive(max_messages=1)
    assert invoke("purge", "emails", "--yes").stdout == "purged 1 message\n"
    assert queue.stats().unack == 1


@pytest.mark.parametrize("words", [["purge", "emails"], ["dead", "purge", "emails"]])
def test_nothing_is_discarded_without_a_terminal_to_ask_on(words: list[str], invoke: Invoke, queue: Queue):
    kill(queue, ["dead"])
    done = invoke(*words, input="y\n")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "give --yes" in done.stderr
    assert queue.stats().dead == 1


@pytest.mark.parametrize(("answer", "left"), [("y", 0), ("n", 1)])
def test_purge_asks_first_on_a_terminal(
    answer: str, left: int, invoke: Invoke, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    kill(queue, ["dead"])
    monkeypatch.setattr(options, "_can_ask", lambda: True)
    result = invoke("dead", "purge", "emails", input=f"{answer}\n")
    assert "Permanently discard 1 dead letter of queue emails?" in result.stderr
    assert result.exit_code == (0 if answer == "y" else 1)
    assert queue.stats().dead == left


def test_purge_asks_with_the_number_of_messages_in_each_state(
    invoke: Invoke, queue: Queue, monkeypatch: pytest.MonkeyPatch
):
    kill(queue, ["dead"])
    queue.send_many([Outgoing("payload", delay=60)] * 3)
    said = "Permanently discard 4 messages of queue emails (3 pending, 1 dead)?"
    refused = invoke("purge", "emails")
    assert refused.stderr.startswith(f"delayq: {said} There is no terminal to ask on: give --yes")
    assert invoke("purge", "emails", "--dry-run").stdout == "would purge 4 messages\n"
    assert invoke("dead", "purge", "emails", "--older-than", "1h", "--dry-run").stdout == "would purge 0 messages\n"
    assert json.loads(invoke("dead", "purge", "emails", "--dry-run", "--json").stdout) == {"would_purge": 1}
    assert queue.stats().inside == 4
    monkeypatch.setattr(options, "_can_ask", lambda: True)
    assert said in invoke("purge", "emails", input="n\n").stderr


def test_queues_are_listed(invoke: Invoke, server: RedisServer):
    assert invoke("queue", "list").stderr == "no queues\n"
    for name in ("orders", "emails"):
        with Queue(name, url=server.url) as queue:
            queue.send("payload")
    assert invoke("queue", "list").stdout == "emails\norders\n"
    listed = [json.loads(line) for line in invoke("queue", "list", "--json").stdout.splitlines()]
    assert listed == [{"queue": "emails"}, {"queue": "orders"}]


def test_young_dead_letters_stay(invoke: Invoke, queue: Queue):
    kill(queue, ["dead"])
    assert invoke("dead", "purge", "emails", "--older-than", "1h", "--yes").stdout == "purged 0 messages\n"
    assert invoke("dead", "purge", "emails", "--yes").stdout == "purged 1 message\n"


def test_dead_letters_are_requeued_by_id(invoke: Invoke, queue: Queue):
    kill(queue, ["a", "b", "c"])
    assert invoke("dead", "requeue", "emails", "a", "b", "a").stdout == "requeued 2 messages\n"
    assert sorted(info.id for info in queue.peek("pending")) == ["a", "b"]


def test_id_that_is_not_dead_makes_a_requeue_fail_after_the_others(invoke: Invoke, queue: Queue):
    kill(queue, ["a"])
    result = invoke("dead", "requeue", "emails", "a", "nobody")
    assert (result.exit_code, result.stdout) == (1, "requeued 1 message\n")
    assert result.stderr == "delayq: not requeued: 1 of 2, not dead or without a payload\n"


def test_all_dead_letters_are_requeued_with_a_delay(invoke: Invoke, queue: Queue):
    kill(queue, [f"m{number}" for number in range(1200)])
    result = invoke("dead", "requeue", "emails", "--all", "--delay", "1h", "--json")
    assert json.loads(result.stdout) == {"matched": 1200, "requeued": 1200}
    stats = queue.stats()
    assert (stats.pending, stats.dead, stats.missing) == (1200, 0, 0)
    assert queue.receive() == []


def test_progress_of_a_purge_and_a_requeue_adds_up(queue: Queue):
    kill(queue, [f"m{number}" for number in range(1200)])
    steps: list[float] = []
    assert queue.dead.requeue("all", progress=steps.append) == 1200
    assert queue.purge("pending", steps.append) == 1200
    assert (sum(steps), len(steps)) == (2400, 9)  # the first step of a requeue only finds the bounds


def test_command_that_is_made_from_a_row_takes_its_settings(
    invoke: Invoke, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    called = list[Any]()

    def touch(_queue: Queue, ids: Any, header: str) -> dict[str, str]:
        called.append((ids, header))
        return {"a": "touched", "b": "unknown"}

    header = Field(
        name="header", label="", placeholder="", size=1, read=lambda text: {"header": text}, is_required=True
    )
    rate = Field(name="rate", label="", placeholder="", size=1, read=lambda _: {}, of_matching=True)
    action = Action(name="touch", done="touched", words=Words("Touch", "touched"), fields=(header, rate))
    text = CommandText("Touch messages.", "Touch messages of QUEUE.", "delayq touch emails a --header x", "touched {}")
    monkeypatch.setattr(Queue, "touch", touch, raising=False)
    monkeypatch.setitem(app.MODULES, "touch", "manage")
    monkeypatch.setitem(manage.MADE, "touch", manage._made(action, text))
    done = invoke("touch", "emails", "a", "b", "--header", "x", "--url", redis_server.url)
    assert (done.exit_code, done.stdout) == (1, "touched a\n")
    assert called == [(("a", "b"), "x")]
    assert "'--header'" in invoke("touch", "emails", "a", "--url", redis_server.url).stderr
    assert "--rate" not in invoke("touch", "--help").stdout
