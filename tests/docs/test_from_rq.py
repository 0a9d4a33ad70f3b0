"""docs/from/rq.md: what its program does with jobs that the real RQ stored, one for each option."""

from __future__ import annotations

import datetime as dt
import http
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import rq
import rq.group

from delayq import Queue
from delayq.types import MessageInfo
from tests.conftest import StartServer
from tests.harness.guides import Program, databases, line_of, rows, unpack

PAGE = "rq.md"
NOW = dt.datetime.now(dt.UTC).replace(microsecond=0)
SOON = NOW + dt.timedelta(days=3)
WAITS = [10, 60]
TASK = "tasks.send_mail"
CALLBACK = rq.Callback(TASK)
HAS = "left: delayq has another message with this id"
HAD = "left: delayq had a message with this id, perhaps this job"


def is_there(found: MessageInfo) -> str:
    return found.state


def expires_in(found: MessageInfo) -> bool:
    assert found.expires_at
    return 60 < (found.expires_at - dt.datetime.now(dt.UTC)).total_seconds() <= 90


Use = dict[str, Any]
CARRIED: dict[str, tuple[Use, Callable[[MessageInfo], object], object]] = {  # option: a use, and what delayq then has
    "f": ({}, lambda found: found.task, TASK),
    "args": ({"args": ("a",)}, lambda found: found.payload, {"to": "a"}),
    "kwargs": ({"args": (), "kwargs": {"to": "b"}}, lambda found: found.payload, {"to": "b"}),
    "datetime": ({"datetime": SOON}, lambda found: found.due_at, SOON),
    "job_id": ({}, lambda found: found.id, "job_id"),
    "job_timeout": ({"job_timeout": 77}, lambda found: found.timeout, 77),
    "ttl": ({"ttl": 90}, expires_in, True),
    "retry": ({"retry": rq.Retry(max=2, interval=WAITS)}, lambda found: found.max_retries, 2),
    "unique": ({"unique": True}, is_there, "pending"),
    "pipeline": ({}, is_there, "pending"),
    "at_front": ({"at_front": True}, is_there, "pending"),
    "result_ttl": ({"result_ttl": 9}, is_there, "pending"),
    "failure_ttl": ({"failure_ttl": 9}, is_there, "pending"),
    "description": ({"description": "text"}, is_there, "pending"),
}
LEFT: dict[str, tuple[Use, str]] = {  # option: a use, and what the program says
    "depends_on": ({}, "dependents"),  # a job on which another one depends
    "repeat": ({"repeat": rq.Repeat(times=3)}, "repeats_left"),
    "rate_limit": ({"rate_limit": rq.RateLimit("key", 1)}, "rate_limit_key"),
    "on_success": ({"on_success": CALLBACK}, "success_callback_name"),
    "on_failure": ({"on_failure": CALLBACK}, "failure_callback_name"),
    "on_stopped": ({"on_stopped": CALLBACK}, "stopped_callback_name"),
    "webhooks": ({"webhooks": [rq.Webhook("http://127.0.0.1:9/hook", "failed")]}, "webhooks"),
    "meta": ({"meta": {"a": 1}}, "meta"),
    "group": ({}, "group_id"),
}
BEYOND: dict[str, tuple[Use, str]] = {  # values of carried options that delayq would not have
    "tuple": ({"args": ((1, 2),)}, "arguments that JSON would change"),
    "bytes": ({"args": (b"raw",)}, "arguments that JSON would change"),
    "subclass": ({"kwargs": {"to": [http.HTTPStatus.OK]}}, "arguments that JSON would change"),
    "function": ({"f": "tasks.other"}, "function tasks.other"),
    "type": ({"args": (7,)}, "the arguments do not match task 'tasks.send_mail'"),
    "twice": ({"kwargs": {"to": "b"}}, "task 'tasks.send_mail'"),
    "interval": ({"retry": rq.Retry(max=2, interval=7)}, "retry_intervals"),
    "long": ({"job_timeout": "2d"}, "timeout"),
    "large": ({"args": ("x" * 2_000_000,)}, "payload"),
    "waits-at-front": ({"datetime": SOON, "at_front": True}, "enqueue_at_front"),
    "i" * 300: ({}, "id"),
}


class Old:
    """RQ's queue, the guide's programs, and the new queue."""

    def __init__(self, url: str, folder: Path) -> None:
        url, new = databases(url)
        self.redis = redis.Redis.from_url(url)
        self.queue = rq.Queue("mails", connection=self.redis)
        self.new = Queue("mails", url=new)
        self.program = Program(folder, {"BROKER_URL": url, "DELAYQ_URL": new})
        unpack(PAGE, folder)

    def enqueue(self, id: str, use: Use) -> None:
        options: Use = {"f": TASK, "args": ("ann",), "job_id": id} | use
        function, at = options.pop("f"), options.pop("datetime", None)
        if at:
            self.queue.enqueue_at(at, function, **options)
        else:
            self.queue.enqueue(function, **options)

    def stored(self, id: str) -> tuple[dict[Any, Any], bool, float | None]:
        """Return a job as RQ has it: its fields, whether it is in the queue, and when it is due."""
        due = self.redis.zscore(self.queue.scheduled_job_registry.key, id)
        return self.redis.hgetall(rq.job.Job.key_for(id)), id in self.queue.get_job_ids(), due

    def work(self) -> None:
        """Run a real worker until the queue is empty."""
        self.program.run("rq", "worker", "--url", self.program.environment["BROKER_URL"], "--burst", "--quiet", "mails")

    def ran(self) -> list[str]:
        """Return the ids of the jobs that RQ has run."""
        return list(self.queue.finished_job_registry.get_job_ids())


@pytest.fixture
def old(start_server: StartServer, tmp_path: Path) -> Iterator[Old]:
    old = Old(start_server(port=True).url, tmp_path)
    yield old
    old.new.close()
    old.redis.close()


def test_table_has_every_option_of_rq_and_each_has_a_test():
    options = set(inspect.signature(rq.Queue.enqueue_call).parameters) - {"self", "func", "timeout"}
    options |= {"f", "job_timeout", "datetime", "group"}
    assert rows(PAGE).keys() == options == CARRIED.keys() | LEFT.keys()
    assert {option for option, fate in rows(PAGE).items() if fate == "left behind"} == LEFT.keys()


@pytest.mark.full
def test_job_with_any_option_is_carried_or_left_as_it_is(old: Old):
    for option, (use, _, _) in CARRIED.items():
        old.enqueue(option, use)
    for option, (use, _) in (LEFT | BEYOND).items():
        if option == "group":
            rq.group.Group.create(old.redis).enqueue_many(
                old.queue, [rq.Queue.prepare_data(TASK, ("ann",), job_id="group")]
            )
        else:
            old.enqueue(option, use)
    old.enqueue("child", {"depends_on": "depends_on"})
    old.enqueue("newer", {})
    old.redis.hset(rq.job.Job.key_for("newer"), "option_of_a_newer_rq", "1")
    left = LEFT | BEYOND | {"newer": ({}, "option_of_a_newer_rq")}
    before = {id: old.stored(id) for id in [*left, "child"]}

    lines = old.program.forward()

    for option, (_, look, expected) in CARRIED.items():
        assert line_of(lines, option) == f"{option} forwarded"
        found = old.new.get(option)
        assert found, option
        assert look(found) == expected, option
        assert old.stored(option) == ({}, False, None)
    for option, (_, said) in left.items():
        assert said in line_of(lines, option).removeprefix(f"{option} left: "), option
    assert old.new.stats().sent == len(CARRIED)
    assert {id: old.stored(id) for id in before} == before
    assert old.new.peek("pending")[0].id == "at_front", "the order of the queue"
    old.work()
    assert set(old.ran()) >= {"depends_on", "child", "group", "meta"}


@pytest.mark.full
def test_killed_program_loses_nothing_and_its_next_run_sends_nothing_twice(old: Old):
    """Killed before the send, and after it."""
    old.enqueue("now", {"ttl": 3600})
    old.enqueue("later", {"datetime": SOON})
    old.program.forward_killed("mails", "mails.send", before=True)
    assert old.program.forward() == ["later forwarded", "now forwarded"]

    old.enqueue("next", {})
    old.program.forward_killed("mails", "mails.send")
    assert old.program.forward() == ["next forwarded"]
    assert old.new.stats().sent == 3
    assert old.program.forward() == []
    assert [key for key in old.redis.scan_iter() if not key.startswith(b"rq:queues")] == []


@pytest.mark.full
def test_job_that_was_perhaps_never_sent_stays_in_rq_after_a_message_with_its_id_was_handled(old: Old):
    """The program was killed before or after it sent the job: its next run finds the same, and cannot tell."""
    old.enqueue("id", {})
    assert old.program.forward() == ["id forwarded"]
    assert old.new.ack(old.new.receive()) == [True]
    old.enqueue("id", {})
    before = old.stored("id")
    old.program.forward_killed("mails", "mails.send", before=True)
    assert old.program.forward() == old.program.forward() == [f"id {HAD}"]
    assert old.stored("id") == before
    old.work()

    old.enqueue("next", {"datetime": NOW})
    before = old.stored("next")
    old.program.forward_killed("mails", "mails.send")
    assert old.new.ack(old.new.receive()) == [True]
    assert old.program.forward() == [f"next {HAD}"]
    assert (old.stored("next"), old.new.stats().sent) == (before, 2)


@pytest.mark.full
def test_job_whose_id_delayq_has_stays_in_rq_even_if_its_payload_is_the_same(old: Old):
    for id in ("taken", "same"):
        old.enqueue(id, {})
    old.enqueue("used", {"datetime": SOON})
    before = [old.stored(id) for id in ("taken", "same", "used")]
    old.new.send("of the new producers", id="taken")
    old.new.send({"to": "ann"}, id="same", task=TASK)
    old.new.send("of the new producers", id="used", unique_for=60)
    assert old.new.cancel("used") == "cancelled"
    assert old.program.forward() == [f"used {HAD}", f"taken {HAS}", f"same {HAS}"]
    assert [old.stored(id) for id in ("taken", "same", "used")] == before


@pytest.mark.full
def test_job_that_a_worker_takes_meanwhile_is_not_sent(old: Old):
    old.enqueue("now", {})
    (old.program.folder / "race.py").write_text(
        "import os, runpy, subprocess\n"
        "from rq.job import Job\n"
        "restore = Job.restore\n"
        "def slow(self, fields):\n"
        "    restore(self, fields)\n"
        "    Job.restore = restore\n"
        "    subprocess.run(['rq', 'worker', '--url', os.environ['BROKER_URL'], '--burst', 'mails'])\n"
        "Job.restore = slow\n"
        "runpy.run_path('forward.py')\n"
    )
    assert "now left: a worker has it" in old.program.python("race.py")
    assert (old.ran(), old.new.stats().sent) == (["now"], 0)


@pytest.mark.full
def test_job_that_has_run_before_stays_in_rq(old: Old):
    old.enqueue("again", {"args": (), "retry": rq.Retry(max=3, interval=WAITS)})  # without an address, it fails
    old.work()
    before = old.stored("again")
    assert before[2], "it waits for its next run"
    (line,) = old.program.forward()
    assert line.startswith("again left: ")
    assert "started_at" in line
    assert old.stored("again") == before
