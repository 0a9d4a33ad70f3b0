"""docs/from/celery.md: what its program does with tasks that the real Celery sent, one for each option."""

from __future__ import annotations

import contextlib
import datetime as dt
import inspect
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery
from celery.app.amqp import AMQP
from celery.app.task import Task
from kombu.messaging import Producer

from delayq import Queue
from delayq.types import MessageInfo
from tests.conftest import StartServer
from tests.harness.guides import Program, databases, line_of, rows, unpack
from tests.harness.waiting import eventually

PAGE = "celery.md"
SOON = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(days=3)
TASK = "tasks.send_mail"
NEXT = Celery("unused").signature(TASK, ("next",))
WAITING = {"countdown": 86_400}
HAS = "left: delayq has another message with this id"
HAD = "left: delayq had a message with this id, perhaps this task"


def is_there(found: MessageInfo) -> str:
    return found.state


def expires_at(found: MessageInfo) -> bool:
    assert found.expires_at
    return abs((found.expires_at - SOON).total_seconds()) < 1


def is_soon(found: MessageInfo) -> bool:
    assert found.due_at
    return abs((found.due_at - dt.datetime.now(dt.UTC)).total_seconds() - 86_400) < 60


Use = dict[str, Any]
Look = tuple[Use, Callable[[MessageInfo], object], object]
THERE: Look = ({}, is_there, "pending")
CARRIED: dict[str, Look] = {  # option: a use, and what delayq then has
    "name": ({}, lambda found: found.task, TASK),
    "args": ({"args": ("a",)}, lambda found: found.payload, {"to": "a"}),
    "kwargs": ({"args": (), "kwargs": {"to": "b"}}, lambda found: found.payload, {"to": "b"}),
    "task_id": ({}, lambda found: found.id, "task_id"),
    "countdown": (WAITING, is_soon, True),
    "eta": ({"eta": SOON}, lambda found: found.due_at, SOON),
    "expires": ({"expires": SOON}, expires_at, True),
    "time_limit": ({"time_limit": 77}, lambda found: found.timeout, 77),
    "serializer": ({"serializer": "json"}, lambda found: found.payload, {"to": "ann"}),
    "compression": ({"compression": "zlib"}, lambda found: found.payload, {"to": "ann"}),
    "content_type": THERE,
    "content_encoding": THERE,
    "shadow": ({"shadow": "name"}, is_there, "pending"),
    "argsrepr": ({"argsrepr": "text"}, is_there, "pending"),
    "kwargsrepr": ({"kwargsrepr": "text"}, is_there, "pending"),
    "origin": ({"origin": "host"}, is_there, "pending"),
    "root_id": ({"root_id": "a"}, is_there, "pending"),
    "parent_id": ({"parent_id": "a"}, is_there, "pending"),
    "ignore_result": ({"ignore_result": True}, is_there, "pending"),
    "reply_to": ({"reply_to": "a"}, is_there, "pending"),
    "expiration": ({"expiration": 99}, is_there, "pending"),
    "producer": THERE,
    "retry": ({"retry": True}, is_there, "pending"),
    "retry_policy": ({"retry_policy": {"max_retries": 1}}, is_there, "pending"),
    "declare": ({"declare": []}, is_there, "pending"),
    "mandatory": ({"mandatory": True}, is_there, "pending"),
    "immediate": ({"immediate": False}, is_there, "pending"),
    "delivery_mode": ({"delivery_mode": 1}, is_there, "pending"),
    "timeout": ({"timeout": 9}, is_there, "pending"),
    "confirm_timeout": ({"confirm_timeout": 9}, is_there, "pending"),
}
LEFT: dict[str, tuple[Use, str]] = {  # option: a use, and what the program says
    "soft_time_limit": ({"soft_time_limit": 9}, "soft_time_limit"),
    "priority": ({"priority": 3}, "priority"),  # in another list
    "link": ({"link": NEXT}, "callbacks"),
    "link_error": ({"link_error": NEXT}, "errbacks"),
    "chain": ({"chain": [NEXT]}, "chain"),
    "chord": ({"chord": NEXT}, "chord"),
    "group_id": ({"group_id": "a"}, "group"),
    "group_index": ({"group_index": 1}, "group_index"),
    "retries": ({"retries": 1}, "retries"),
    "headers": ({"headers": {"mine": 1}}, "mine"),
    "stamped_headers": ({"stamped_headers": ["a"], "a": "b"}, "stamped_headers, stamps"),
    "replaced_task_nesting": ({"replaced_task_nesting": 1}, "replaced_task_nesting"),
}
UNREAD = {"queue": "other", "exchange": "other", "routing_key": "other"}  # in lists that the program does not read
INTERNAL = {"self", "options", "properties", "body", "now", "timezone", "callbacks", "errbacks", "create_sent_event"}
BEYOND: dict[str, tuple[Use, str]] = {  # values of carried options that delayq would not have
    "yaml": ({"serializer": "yaml"}, "it cannot be read"),
    "pickle": ({"serializer": "pickle"}, "it cannot be read"),
    "date": ({"args": (SOON,)}, "it cannot be read"),
    "task": ({"task": "tasks.other"}, "task tasks.other"),
    "type": ({"args": (7,)}, "the arguments do not match task 'tasks.send_mail'"),
    "twice": ({"kwargs": {"to": "b"}}, "task 'tasks.send_mail'"),
    "long": ({"time_limit": 200_000}, "timeout"),
    "over": ({"expires": SOON - dt.timedelta(days=9)}, "expires_in"),
    "large": ({"args": ("x" * 2_000_000,)}, "payload"),
    "property": ({"message_id": "a"}, "message_id"),
    "naive-eta": ({"eta": SOON.replace(tzinfo=None)}, "is naive"),
    "naive-expiry": ({"expires": SOON.replace(tzinfo=None)}, "it cannot be read"),
    "same-header": ({"headers": {"delivery_tag": "a"}}, "delivery_tag"),
}


class Old:
    """Celery's broker, the guide's programs, and the new queue."""

    def __init__(self, url: str, folder: Path) -> None:
        url, new = databases(url)
        self.redis = redis.Redis.from_url(url)
        self.app = Celery("tasks", broker=url)
        self.app.conf.task_always_eager = False
        self.new = Queue("mails", url=new)
        self.program = Program(folder, {"BROKER_URL": url, "DELAYQ_URL": new})
        unpack(PAGE, folder)
        (folder / "revoked.json").write_text("{}")

    def send(self, id: str, use: Use) -> None:
        options = {"task": TASK, "args": ("ann",), "task_id": id} | use
        self.app.send_task(options.pop("task"), **options)

    def stored(self) -> dict[str, list[str]]:
        """Return the ids of the tasks in each list, in order."""
        return {
            key.decode(): [json.loads(raw)["headers"]["id"] for raw in self.redis.lrange(key, 0, -1)]
            for key in self.redis.scan_iter(_type="list")
        }

    @contextlib.contextmanager
    def worker(self, *options: str) -> Iterator[None]:
        """Run a real worker, until it is asked to stop."""
        command = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "solo", "--loglevel", "ERROR"]
        program = self.program
        worker = subprocess.Popen(
            [*command, *options], cwd=program.folder, env=program.environment, stdout=subprocess.DEVNULL
        )
        try:
            assert eventually(lambda: bool(self.app.control.ping(timeout=0.5)), 60)
            yield
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait()


@pytest.fixture
def old(start_server: StartServer, tmp_path: Path) -> Iterator[Old]:
    old = Old(start_server(port=True).url, tmp_path)
    yield old
    old.app.pool.force_close_all()
    old.app.close()
    old.new.close()
    old.redis.close()


def test_table_has_every_option_of_celery_and_each_has_a_test():
    sources = (Task.apply_async, AMQP.as_task_v2, Producer.publish)
    options = {name for source in sources for name in inspect.signature(source).parameters}
    options = options - INTERNAL | {"queue", "revoke", "global_keyprefix"}
    tested = CARRIED.keys() | LEFT.keys() | UNREAD.keys() | {"revoke", "global_keyprefix"}
    assert rows(PAGE).keys() == options == tested
    assert rows(PAGE)["global_keyprefix"] == "refused"
    left = {option for option, fate in rows(PAGE).items() if fate == "left behind"}
    assert left == LEFT.keys() | UNREAD.keys() | {"revoke"}


@pytest.mark.full
def test_task_with_any_option_is_carried_or_left_as_it_is(old: Old):
    left = LEFT | BEYOND
    for option, (use, *_) in (CARRIED | left).items():
        old.send(option, use)
    for option, value in UNREAD.items():
        old.send(option, {option: value} if option == "queue" else {"exchange": value, "routing_key": value})
    old.send("newer", {})
    newest = json.loads(old.redis.lindex("celery", 0) or b"")
    old.redis.lset("celery", 0, json.dumps(newest | {"part_of_a_newer_celery": 1}))
    left["newer"] = ({}, "part_of_a_newer_celery")
    before = old.stored()

    lines = old.program.forward()

    assert [line for option in CARRIED if (line := line_of(lines, option)) != f"{option} forwarded"] == []
    for option, (_, look, expected) in CARRIED.items():
        found = old.new.get(option)
        assert found, option
        assert look(found) == expected, option
    for option, (_, said) in left.items():
        assert said in line_of(lines, option).removeprefix(f"{option} left: "), option
    assert old.new.stats().sent == len(CARRIED) == len(lines) - len(left)
    after = {key: [id for id in ids if id not in CARRIED] for key, ids in before.items()}
    assert {key: sorted(ids) for key, ids in old.stored().items()} == {key: sorted(ids) for key, ids in after.items()}


@pytest.mark.full
def test_killed_program_loses_nothing_and_its_next_run_sends_nothing_twice(old: Old):
    """Killed before the send, and after it."""
    old.send("now", {})
    old.send("later", {"eta": SOON})
    old.program.forward_killed("mails", "mails.send", before=True)
    assert old.program.forward() == ["now forwarded", "later forwarded"]

    old.send("next", {})
    old.program.forward_killed("mails", "mails.send")
    assert old.program.forward() == ["next forwarded"]
    assert old.new.stats().sent == 3
    assert (old.program.forward(), old.stored()) == ([], {})


@pytest.mark.full
def test_task_that_was_perhaps_never_sent_stays_in_celery_after_a_message_with_its_id_was_handled(old: Old):
    """The program was killed before or after it sent the task: its next run finds the same, and cannot tell."""
    old.send("id", {})
    assert old.program.forward() == ["id forwarded"]
    assert old.new.ack(old.new.receive()) == [True]
    old.send("id", {})
    old.program.forward_killed("mails", "mails.send", before=True)
    assert old.program.forward() == old.program.forward() == [f"id {HAD}"]
    assert old.stored() == {"celery": ["id"]}

    old.redis.delete("celery")
    old.send("next", {})
    old.program.forward_killed("mails", "mails.send")
    assert old.new.ack(old.new.receive()) == [True]
    assert old.program.forward() == [f"next {HAD}"]
    assert (old.stored(), old.new.stats().sent) == ({"celery": ["next"]}, 2)


@pytest.mark.full
def test_task_whose_id_delayq_has_stays_in_celery_and_so_does_a_second_task_with_an_id(old: Old):
    old.new.send("of the new producers", id="taken")
    old.new.send("of the new producers", id="used", unique_for=60)
    assert old.new.cancel("used") == "cancelled"
    for id in ("taken", "used", "twin", "twin"):
        old.send(id, {})
    assert old.program.forward() == [f"taken {HAS}", f"used {HAD}", "twin forwarded", f"twin {HAS}"]
    assert sorted(old.stored()["celery"]) == ["taken", "twin", "used"]


@pytest.mark.full
def test_program_without_the_revoked_ids_touches_nothing(old: Old):
    old.send("now", {})
    (old.program.folder / "revoked.json").unlink()
    old.program.python("forward.py", code=1)
    (old.program.folder / "revoked.json").write_text("")  # no worker replied
    old.program.python("forward.py", code=1)
    assert (old.stored(), old.new.stats().sent) == ({"celery": ["now"]}, 0)


@pytest.mark.full
def test_keys_with_a_prefix_are_refused_and_do_not_look_like_an_empty_queue(old: Old):
    tasks = old.program.folder / "tasks.py"
    tasks.write_text(f"{tasks.read_text()}\napp.conf.broker_transport_options = {{'global_keyprefix': 'mine:'}}\n")
    old.program.python("-c", "from tasks import send_mail; send_mail.delay('ann')")
    old.program.python("forward.py", code=1)
    assert (old.redis.llen("mine:celery"), old.new.stats().sent) == (1, 0)


@pytest.mark.full
def test_task_that_was_revoked_stays_in_celery_and_one_that_a_worker_holds_is_counted(old: Old):
    """A worker holds tasks with an ETA, and returns them when it stops, also the revoked ones."""
    program = old.program
    with old.worker():
        for id in ("revoke", "keep"):
            old.send(id, {"eta": SOON})
        assert eventually(lambda: old.redis.hlen("unacked") == 2, 60)
        assert program.forward() == ["held by workers, or left by killed ones: 2"]
        old.app.control.revoke("revoke")
        assert eventually(lambda: "revoke" in str(old.app.control.inspect(timeout=0.5).revoked()), 60)
        revoked = (sys.executable, "-m", "celery", "-A", "tasks", "inspect", "revoked", "--json", "--timeout", "5")
        (program.folder / "revoked.json").write_text(program.run(*revoked))
    assert sorted(program.forward()) == ["keep forwarded", "revoke left: revoked"]
    assert old.stored() == {"celery": ["revoke"]}

    with old.worker("-Q", "idle"):
        old.app.control.revoke("revoke")
        old.app.control.add_consumer("celery")
        assert eventually(lambda: old.stored() == {} and not old.redis.exists("unacked"), 60)
    assert old.stored() == {}, "the worker did not hold it for later"


@pytest.mark.full
def test_task_that_a_worker_takes_meanwhile_is_not_sent(old: Old):
    old.send("now", {})
    (old.program.folder / "race.py").write_text(
        "import runpy\n"
        "from kombu.message import Message\n"
        "payload = Message.payload\n"
        "def taken(self):\n"
        "    self.channel.client.brpop('celery')\n"
        "    return payload.fget(self)\n"
        "Message.payload = property(taken)\n"
        "runpy.run_path('forward.py')\n"
    )
    assert old.program.python("race.py") == "now left: a worker has it\n"
    assert old.new.stats().sent == 0


@pytest.mark.full
def test_what_is_no_task_or_one_of_an_old_celery_stays_in_celery(old: Old):
    old.app.conf.task_protocol = 1
    old.send("old", {})
    old.redis.lpush("celery", "junk", "[]", "{}")
    before = old.redis.lrange("celery", 0, -1)
    lines = old.program.forward()
    assert [line.startswith("a message without an id left: it cannot be read") for line in lines] == [True] * 4
    assert (old.redis.lrange("celery", 0, -1), old.new.stats().sent) == (before, 0)
