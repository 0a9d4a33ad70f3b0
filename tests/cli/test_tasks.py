"""Tasks on the command line: sent by their names, shown, and run by consumers that may be killed."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from delayq import Outgoing, Queue
from tests.cli.conftest import Invoke, Run, Start
from tests.harness.lines import Write
from tests.harness.waiting import eventually

MODULE = """
import os
from delayq import Queue

emails = Queue("emails", lease=1, max_retries=100)

@emails.task
def note(number: int, *, pause: float = 0.0) -> object:
    import time
    time.sleep(pause)
    with open("notes", "a") as notes:
        notes.write(f"{number}\\n")
    return print  # which cannot be sent out of a process of a pool by its value
"""


def test_task_is_sent_by_its_name(invoke: Invoke, queue: Queue):
    result = invoke("send", "emails", '{"user_id": 42}', "--task", "welcome", "--id", "a")
    assert result.exit_code == 0, result.output
    (info,) = queue.peek()
    assert (info.task, info.payload, info.headers) == ("welcome", {"user_id": 42}, {})
    assert "task         welcome" in " ".join(invoke("show", "emails", "a").output.split(" "))
    assert "a, for task welcome, " in invoke("why", "emails", "a").output


def test_schedule_runs_a_task(invoke: Invoke, queue: Queue):
    for name, words in (("one", ['{"user_id": 42}']), ("two", [])):
        result = invoke("cron", "add", "emails", name, "@daily", *words, "--task", "welcome", "--max-retries", "7")
        assert result.exit_code == 0, result.output
    found = [(each.task, each.schedule, each.payload, each.max_retries) for each in queue.peek()]
    assert sorted(found, key=str) == [("welcome", "one", {"user_id": 42}, 7), ("welcome", "two", {}, 7)]
    lines = invoke("cron", "list", "emails").stdout.splitlines()
    assert (lines[0].split()[-1], [each.split()[-1] for each in lines[1:]]) == ("task", ["welcome", "welcome"])


FILE = """
[one]
when = "@daily"
task = "welcome"
payload = { user_id = 42 }
max_retries = 7

[two]
when = "@daily"
task = "note"
"""


def test_file_of_schedules_names_tasks(invoke: Invoke, queue: Queue, tmp_path: Path):
    (tmp_path / "jobs.toml").write_text(FILE)
    loading = ("cron", "load", "emails", "jobs.toml")
    for name, task in (("one", "other"), ("two", "note")):
        assert invoke("cron", "add", "emails", name, "@daily", "{}", "--task", task).exit_code == 0
    changed = ["~ one: task 'other' -> 'welcome', payload {} -> {'user_id': 42}, max_retries 5 -> 7"]
    assert invoke(*loading, "--dry-run").stdout.splitlines() == changed
    assert invoke(*loading).stdout.splitlines() == changed
    found = [(each.task, each.schedule, each.payload, each.max_retries) for each in queue.peek()]
    assert sorted(found, key=str) == [("note", "two", {}, 5), ("welcome", "one", {"user_id": 42}, 7)]
    assert invoke(*loading).stdout == "emails already matches jobs.toml: nothing changed\n"
    (tmp_path / "jobs.toml").write_text(FILE.replace('task = "note"', ""))
    assert invoke(*loading).stdout == "~ two: task 'note' -> None, payload {} -> None\n"
    assert [(each.task, each.payload) for each in queue.schedules.list()] == [
        ("welcome", {"user_id": 42}),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ('task = ""', "jobs.toml: [one]: a task name must not be empty"),
        ("task = 5", "jobs.toml: [one]: Expected `str | null`, got `int` - at `$.task`"),
        ('task = "a"\npayload = [1]', "jobs.toml: [one]: the payload of task 'a' is not an object"),
        ('task = "a"\nexec = "b"', "jobs.toml: [one]: give either task or exec, not both"),
    ],
)
def test_wrong_task_in_a_file_of_schedules_changes_nothing(
    invoke: Invoke, queue: Queue, tmp_path: Path, fields: str, said: str
):
    queue.schedules.add("old", "@daily")
    (tmp_path / "jobs.toml").write_text(f'[one]\nwhen = "@daily"\n{fields}\n')
    result = invoke("cron", "load", "emails", "jobs.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert [each.name for each in queue.schedules.list()] == ["old"]


@pytest.mark.parametrize("payload", ["hello", "42", "[1]", "null"])
def test_payload_of_a_task_must_be_an_object(payload: str, invoke: Invoke, queue: Queue):
    result = invoke("send", "emails", payload, "--task", "welcome")
    assert result.exit_code == 2
    assert "the payload of task 'welcome' is not an object: give a dict of its arguments" in result.stderr
    assert queue.stats().sent == 0


def test_file_may_name_tasks(invoke: Invoke, queue: Queue, write: Write):
    path = write([{"payload": {"user_id": 42}, "task": "welcome"}, {"payload": "x"}])
    assert invoke("send", "emails", "--file", str(path)).exit_code == 0
    assert sorted(str(each.task) for each in queue.peek()) == ["None", "welcome"]


def test_consumer_runs_what_the_command_line_sends(delayq: Run, invoke: Invoke, queue: Queue, tmp_path: Path):
    (tmp_path / "app.py").write_text(MODULE)
    invoke("send", "emails", '{"number": 42}', "--task", "note")
    done = delayq("consume", "app:emails", "--burst")
    assert done.returncode == 0, done.stderr
    assert ((tmp_path / "notes").read_text(), queue.stats().acked) == ("42\n", 1)


PLAIN = """
from delayq import Queue

emails = Queue("emails")

@emails.handler
def note(message):
    open("ran", "w").close()
"""


@pytest.mark.parametrize(
    "words", [["emails", "--exec", "touch ran"], ["app:emails"], ["app:emails", "--pool", "process"]]
)
def test_consumer_without_tasks_leaves_them_to_others(
    words: list[str], delayq: Run, invoke: Invoke, queue: Queue, tmp_path: Path
):
    (tmp_path / "app.py").write_text(PLAIN)
    queue.send({"number": 1}, id="a", task="note", max_retries=0, results=60)
    done = delayq("consume", *words, "--burst")
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    (info,) = queue.peek("retry")
    assert (info.retries_used, info.max_retries) == (0, 0)
    why = invoke("why", "emails", "a").output
    assert "has not been started: " in why
    assert "UnknownTask: this consumer of queue emails has no task 'note': " in why
    assert "task unknown, retrying" in done.stderr


@pytest.mark.full
@pytest.mark.parametrize("pool", ["thread", "process"])
def test_every_task_runs_although_its_consumers_are_killed(pool: str, start: Start, queue: Queue, tmp_path: Path):
    (tmp_path / "app.py").write_text(MODULE)
    count = 200
    arguments = ({"number": number, "pause": 0.02} for number in range(count))
    queue.send_many([Outgoing(each, task="note", max_retries=100) for each in arguments])
    words = ("consume", "app:emails", "--concurrency", "2", "--pool", pool)
    for _ in range(4):
        before = queue.stats().acked
        consumer = start(*words, stderr=None, stdout=None)
        assert eventually(lambda before=before: queue.stats().acked > before + 5, seconds=60)  # type: ignore[misc]
        consumer.kill()
        consumer.wait()
    start(*words, stderr=None, stdout=None)
    assert eventually(lambda: queue.stats().acked == count, seconds=120)
    ran = Counter(map(int, (tmp_path / "notes").read_text().split()))
    assert sorted(ran) == list(range(count))
    assert (queue.stats().dead, queue.dead.list()) == (0, [])


@pytest.mark.full
def test_next_consumer_of_a_rolling_deployment_runs_a_task_that_this_one_lacks(
    start: Start, queue: Queue, tmp_path: Path
):
    (tmp_path / "old.py").write_text('from delayq import Queue\nemails = Queue("emails")\nemails.handler(print)\n')
    (tmp_path / "app.py").write_text(MODULE)
    queue.send({"number": 1}, task="note", max_retries=0)
    start("consume", "old:emails", stderr=None, stdout=None)
    assert eventually(lambda: queue.stats().retry == 1, seconds=60)
    began = time.monotonic()
    start("consume", "app:emails", stderr=None, stdout=None)
    assert eventually(lambda: queue.stats().acked == 1, seconds=120)
    assert time.monotonic() - began > 5  # 10 s after the first attempt
    assert (tmp_path / "notes").read_text() == "1\n"
