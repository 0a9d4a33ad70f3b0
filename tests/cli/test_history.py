"""show --history, and a queue's ledger in the topic commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delayq import Queue
from tests.cli.conftest import Invoke
from tests.harness.hostile import commands_to_a_terminal
from tests.harness.ledgers import entry

AT = 1_700_000_000_000
LEDGER = "delayq:{emails}:events"


@pytest.fixture
def recorded(queue: Queue, redis_client: Any) -> Queue:
    """A queue that holds the message here; its ledger also has the message gone."""
    queue.send("hello", id="here", delay=60)
    for id_ in ("here", "gone"):
        redis_client.xadd(LEDGER, entry(id_, "sent", AT, due=AT + 1000))
    redis_client.xadd(LEDGER, entry("gone", "promoted", AT + 1003, due=AT + 1000, late=3))
    redis_client.xadd(LEDGER, entry("gone", "delivered", AT + 2234, due=AT + 1000, late=1234, attempt=1, consumer="w1"))
    redis_client.xadd(LEDGER, entry("gone", "nacked", AT + 2300, due=AT + 5000, attempt=1, reason="ValueError: no"))
    redis_client.xadd(LEDGER, entry("gone", "acked", AT + 5100, attempt=2))
    return queue


def test_history_is_printed_below_the_message(invoke: Invoke, recorded: Queue):
    known = invoke("show", recorded.name, "here").stdout
    result = invoke("show", recorded.name, "here", "--history")
    assert (result.exit_code, result.stderr) == (0, "")
    empty, heading, entry = result.stdout.splitlines()[known.count("\n") :]
    assert (empty, heading.split()) == ("", ["time", "after", "event", "due", "in"])
    assert entry.partition(" ago ")[2].split() == ["sent", "1s"]
    dated = invoke("show", recorded.name, "here", "--history", "--long").stdout.splitlines()[-1]
    assert dated.partition(" ago ")[2].split() == ["(2023-11-14", "22:13:20.000+00:00)", "sent", "1s"]


def test_message_that_is_gone_is_shown_by_its_history(invoke: Invoke, recorded: Queue):
    result = invoke("show", recorded.name, "gone", "--history")
    assert result.exit_code == 0
    assert result.stderr == "queue emails has no message 'gone'; this is its history in the ledger\n"
    first, *rows = result.stdout.splitlines()
    assert first.split() == ["time", "after", "event", "attempt", "late", "due", "in", "consumer", "reason"]
    assert [row.partition(" ago ")[2].split() for row in rows] == [
        ["sent", "1s"],
        ["1s", "promoted", "3ms"],
        ["2.2s", "delivered", "1", "1,234ms", "w1"],
        ["2.3s", "nacked", "1", "2.7s", "ValueError:", "no"],
        ["5.1s", "acked", "2"],
    ]
    starts = [row.index(word) for row, word in zip(rows, ("sent", "prom", "deliv", "nack", "ack"), strict=True)]
    assert len(set(starts)) == 1


def test_history_in_json_is_part_of_the_message(invoke: Invoke, recorded: Queue):
    here = json.loads(invoke("show", recorded.name, "here", "--history", "--json").stdout)
    assert (here["state"], here["payload"]) == ("pending", "hello")
    assert [each["event"] for each in here["history"]] == ["sent"]
    result = invoke("show", recorded.name, "gone", "--history", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    gone = json.loads(result.stdout)
    assert (gone["id"], gone["queue"], gone["state"]) == ("gone", "emails", None)
    assert [each["event"] for each in gone["history"]] == ["sent", "promoted", "delivered", "nacked", "acked"]
    delivered = gone["history"][2]
    assert delivered.pop("entry")
    assert delivered == {
        "id": "gone", "event": "delivered", "at": "2023-11-14T22:13:22.234000Z", "attempt": 1,
        "due_at": "2023-11-14T22:13:21Z", "late": 1.234, "consumer": "w1", "reason": None,
    }  # fmt: skip


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_unknown_message_is_the_same_error_with_history(invoke: Invoke, recorded: Queue, json_: list[str]):
    plain = invoke("show", recorded.name, "nobody")
    result = invoke("show", recorded.name, "nobody", "--history", *json_)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1:] == plain.stderr.splitlines()


def test_queue_without_a_ledger_says_how_to_turn_it_on(invoke: Invoke, queue: Queue):
    queue.send("hello", id="here", delay=60)
    result = invoke("show", "emails", "here", "--history")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == len(invoke("show", "emails", "here").stdout.splitlines())
    assert result.stderr == "queue emails keeps no ledger: to start one, run delayq configure emails --events\n"
    assert json.loads(invoke("show", "emails", "here", "--history", "--json").stdout)["history"] == []


def test_ledger_without_entries_for_a_message_says_so(invoke: Invoke, queue: Queue):
    queue.send("hello", id="here", delay=60)
    queue.configure(events=True)
    result = invoke("show", "emails", "here", "--history")
    assert (result.exit_code, result.stderr) == (0, "the ledger of queue emails has no entry for 'here'\n")


def test_ledger_that_was_turned_off_still_shows_its_entries(invoke: Invoke, recorded: Queue):
    recorded.configure(events=True)
    assert recorded.cancel("here") == "cancelled"
    recorded.configure(events=False)
    result = invoke("show", "emails", "here", "--history")
    assert [line.split()[-1] for line in result.stdout.splitlines()[-1:]] == ["cancelled"]


def test_ledger_is_read_by_the_commands_of_topics(invoke: Invoke, recorded: Queue, redis_client: Any):
    redis_client.xadd(LEDGER, {"order": "7"})
    ids = [record.id for record in recorded.events.range()]
    lines = invoke("topic", "tail", "emails", "--ledger", "--from", "0", "--wait", "0").stdout.splitlines()
    assert lines == [
        f"{ids[0]}  here sent, due 2023-11-14 22:13:21.000+00:00",
        f"{ids[1]}  gone sent, due 2023-11-14 22:13:21.000+00:00",
        f"{ids[2]}  gone promoted, 3ms late",
        f"{ids[3]}  gone delivered, attempt 1, 1,234ms late, by w1",
        f"{ids[4]}  gone nacked, attempt 1, due 2023-11-14 22:13:25.000+00:00: ValueError: no",
        f"{ids[5]}  gone acked, attempt 2",
        f"{ids[6]}  order=7",
    ]
    read = invoke("topic", "read", "emails", "--ledger", "--json", "--limit", "1").stdout
    assert json.loads(read)["fields"]["id"] == "here"
    assert invoke("topic", "group", "create", "emails", "audit", "--start", "0", "--ledger").exit_code == 0
    polled = ["topic", "read", "emails", "audit", "--ledger", "--consumer", "a", "--ack", "--json"]
    assert len(invoke(*polled).stdout.splitlines()) == 7
    trimmed = invoke("topic", "trim", "emails", "--ledger", "--acked").stdout
    assert trimmed == "dropped 7 records of topic emails:events; 0 left\n"


def test_command_that_reads_a_ledger_deletes_no_old_dead_letters(invoke: Invoke, recorded: Queue, redis_client: Any):
    group = recorded.events.group("audit", start="0")
    group.bury(group.poll("a", 1)[0], "a")
    key = f"{LEDGER}:group:audit:dead"
    ((_, fields),) = redis_client.xrange(key)
    redis_client.delete(key)
    redis_client.xadd(key, fields, id="1-0")  # as if it had died in 1970
    read = invoke("topic", "read", "emails", "audit", "--ledger", "--consumer", "b", "--json")
    assert len(read.stdout.splitlines()) == 5
    assert group.dead_length() == 1
    for kept, left in ((None, 1), (90 * 86400, 0)):  # programs say how long they keep them
        with Queue(recorded.name, redis=redis_client, dead_retention=kept) as again:
            again.events.group("audit").poll("b")
        assert group.dead_length() == left


def test_topic_with_the_queues_name_is_separate(invoke: Invoke, recorded: Queue):
    assert recorded.events.length() == 6
    assert invoke("topic", "publish", "emails", "mine").exit_code == 0
    assert len(invoke("topic", "read", "emails", "--json").stdout.splitlines()) == 1
    assert recorded.events.length() == 6


@pytest.mark.parametrize("words", [["publish", "emails", "x"], ["cancel", "emails", "x"]])
def test_nothing_is_published_to_a_ledger(invoke: Invoke, recorded: Queue, words: list[str]):
    result = invoke("topic", *words, "--ledger")
    assert result.exit_code == 2
    assert "--ledger" in result.stderr
    assert recorded.events.length() == 6


AUDIT = """
import asyncio
from delayq import Event

def note(record):
    event = Event.of(record)
    with open("audit.txt", "a") as file:
        file.write(f"{event.id} {event.event}\\n")

async def note_async(record):
    await asyncio.sleep(0)
    note(record)
"""


@pytest.mark.parametrize("function", ["note", "note_async"])
def test_consumer_follows_a_ledger(invoke: Invoke, recorded: Queue, tmp_path: Path, function: str):
    (tmp_path / "audit.py").write_text(AUDIT)
    words = ["--topic", recorded.name, "--ledger", "--group", "audit", "--start", "0", "--burst", "-c", "1"]
    done = invoke("consume", *words, f"audit:{function}")
    assert done.exit_code == 0, done.stderr
    lines = (tmp_path / "audit.txt").read_text().splitlines()
    assert lines == ["here sent", *(f"gone {each}" for each in ("sent", "promoted", "delivered", "nacked", "acked"))]
    (group,) = recorded.events.groups()
    assert (group.name, group.unacked, group.lag) == ("audit", 0, 0)


def test_topic_can_have_no_ledger(invoke: Invoke):
    result = invoke("consume", "--topic", "emails", "--group", "audit", "--events", "audit:note")
    assert result.exit_code == 2
    assert "--events applies only to queues" in result.stderr


def test_ledger_option_needs_a_topic(invoke: Invoke):
    result = invoke("consume", "audit:note", "--ledger")
    assert result.exit_code == 2
    assert "--ledger needs --topic" in result.stderr


ATTACK = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\n\x08\x7f\u202e\u2028\u200b"


@pytest.mark.parametrize("json_", [[], ["--json"]])
def test_ledger_output_cannot_control_the_terminal(invoke: Invoke, queue: Queue, redis_client: Any, json_: list[str]):
    queue.send("x", id="a\u202e\u200b", delay=60)
    for id_ in ("a\u202e\u200b", ATTACK):
        redis_client.xadd(LEDGER, entry(id_, "nacked", AT, reason=ATTACK, consumer=ATTACK))
    redis_client.xadd(LEDGER, entry("a", "nacked", AT) | {"reason": b"\xff\x1b[2J", "id": b"\xfe\x1b"})
    redis_client.xadd(LEDGER, {ATTACK: ATTACK})
    for words in (
        ["show", "emails", "a\u202e\u200b", "--history"],
        ["topic", "read", "emails", "--ledger"],
        ["topic", "tail", "emails", "--ledger", "--from", "0", "--wait", "0"],
    ):
        result = invoke(*words, *json_)
        assert result.exit_code == 0, result.stderr
        assert "owned" in result.stdout
        assert json_ or words[0] == "show" or r"\xfe\x1b nacked" in result.stdout
        assert commands_to_a_terminal(result.stdout + result.stderr) == set()
        assert "".join(each for each in result.stdout if not each.isprintable()).strip("\n") == ""
