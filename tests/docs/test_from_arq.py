"""docs/from/arq.md: what its program does with jobs that the real arq stored, one for each option."""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from delayq import Queue
from delayq.types import MessageInfo
from tests.conftest import StartServer
from tests.harness.guides import OWN_PACKAGES, Program, databases, install, line_of, rows, unpack
from tests.harness.waiting import eventually

PAGE = "arq.md"
DAY = 86_400
HAS = "left: delayq has another message with this id"
HAD = "left: delayq had a message with this id, perhaps this job"
FILL = """
import ast, asyncio, contextlib, datetime, sys
from arq import create_pool
from tasks import WorkerSettings
async def main():
    pool = await create_pool(WorkerSettings.redis_settings)
    for id, use in ast.literal_eval(sys.argv[1]).items():
        options = {"function": "send_mail", "args": ("ann",), "_job_id": id} | use
        if "_defer_until" in options:
            options["_defer_until"] = datetime.datetime.fromtimestamp(options["_defer_until"], datetime.UTC)
        abort = options.pop("abort", False)
        job = await pool.enqueue_job(options.pop("function"), *options.pop("args"), **options)
        if abort:
            with contextlib.suppress(asyncio.TimeoutError):
                await job.abort(timeout=0)
    await pool.aclose()
asyncio.run(main())
"""
OPTIONS = """
import inspect, json
from arq import ArqRedis
print(json.dumps(list(inspect.signature(ArqRedis.enqueue_job).parameters)))
"""


def due_in(found: MessageInfo) -> int:
    assert found.due_at
    return round((found.due_at - dt.datetime.now(dt.UTC)).total_seconds() / DAY)


def expires_in(found: MessageInfo) -> bool:
    assert found.expires_at
    return 60 < (found.expires_at - dt.datetime.now(dt.UTC)).total_seconds() <= 90


Use = dict[str, Any]
CARRIED: dict[str, tuple[Use, Callable[[MessageInfo], object], object]] = {  # option: a use, and what delayq then has
    "function": ({}, lambda found: found.payload["function"], "send_mail"),
    "args": ({"args": ("a", [1, None])}, lambda found: found.payload["args"], ["a", [1, None]]),
    "kwargs": ({"to": "b", "args": ()}, lambda found: found.payload["kwargs"], {"to": "b"}),
    "_job_id": ({}, lambda found: found.id, "_job_id"),
    "_defer_by": ({"_defer_by": 3 * DAY}, due_in, 3),
    "_defer_until": ({"_defer_until": int(dt.datetime.now(dt.UTC).timestamp()) + 3 * DAY}, due_in, 3),
    "_expires": ({"_expires": 90}, expires_in, True),
}
LEFT: dict[str, tuple[Use, str]] = {  # option: a use, and what the program says
    "_job_try": ({"_job_try": 2}, "t"),
    "Job.abort": ({"abort": True, "_defer_by": DAY}, "it was aborted"),
}
UNREAD = {"_queue_name": {"_queue_name": "other"}}
BEYOND: dict[str, tuple[Use, str]] = {  # values of carried options that delayq would not have
    "tuple": ({"args": ((1, 2),)}, "arguments that JSON would change"),
    "bytes": ({"args": (b"raw",)}, "arguments that JSON would change"),
    "unknown": ({"function": "other"}, "function other"),
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("packages")
    install(OWN_PACKAGES[PAGE], folder)
    return folder


class Old:
    """arq's server, the guide's programs, and the new queue."""

    def __init__(self, url: str, folder: Path, packages: Path) -> None:
        url, new = databases(url)
        self.redis = redis.Redis.from_url(url)
        self.new = Queue("mails", url=new)
        self.program = Program(folder, {"BROKER_URL": url, "DELAYQ_URL": new, "PYTHONPATH": str(packages)})
        unpack(PAGE, folder)

    def enqueue(self, uses: dict[str, Use]) -> None:
        self.program.python("-c", FILL, repr(uses))

    def stored(self) -> dict[bytes, bytes | None]:
        """Return all that arq has stored."""
        return {key: self.redis.dump(key) for key in self.redis.scan_iter() if not key.endswith(b"health-check")}

    def start_worker(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "arq", "tasks.WorkerSettings"]
        program = self.program
        return subprocess.Popen(
            command, cwd=program.folder, env=program.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


@pytest.fixture
def old(start_server: StartServer, tmp_path: Path, packages: Path) -> Iterator[Old]:
    old = Old(start_server(port=True).url, tmp_path, packages)
    yield old
    old.new.close()
    old.redis.close()


def test_each_row_of_the_table_has_a_test():
    left = {option for option, fate in rows(PAGE).items() if fate == "left behind"}
    assert left == LEFT.keys() | UNREAD.keys()
    assert rows(PAGE).keys() == CARRIED.keys() | left


@pytest.mark.full
def test_job_with_any_option_is_carried_or_left_as_it_is(old: Old):
    assert set(json.loads(old.program.python("-c", OPTIONS))) - {"self"} == rows(PAGE).keys() - {"Job.abort"}
    changed: dict[str, tuple[Use, str]] = {
        "newer": ({}, "option_of_a_newer_arq"),
        "subclass": ({}, "arguments that JSON would change"),
    }
    left = LEFT | BEYOND | changed
    old.enqueue({option: use for option, (use, *_) in left.items()} | UNREAD)
    old.program.python(
        "-c",
        "import http, os, pickle, redis\n"
        "server = redis.Redis.from_url(os.environ['BROKER_URL'])\n"
        "for id, more in (('newer', {'option_of_a_newer_arq': 1}), ('subclass', {'a': (http.HTTPStatus.OK,)})):\n"
        "    key = f'arq:job:{id}'\n"
        "    server.set(key, pickle.dumps(pickle.loads(server.get(key)) | more), keepttl=True)",
    )
    old.redis.zadd("arq:queue", {"gone": 5})  # its job has expired
    left["gone"] = ({}, "it has expired")
    before = old.stored()
    old.enqueue({option: use for option, (use, _, _) in CARRIED.items()})

    lines = old.program.forward()

    assert [line for option in CARRIED if (line := line_of(lines, option)) != f"{option} forwarded"] == []
    for option, (_, look, expected) in CARRIED.items():
        found = old.new.get(option)
        assert found, option
        assert look(found) == expected, option
    for option, (_, said) in left.items():
        assert said in line_of(lines, option).removeprefix(f"{option} left: "), option
    assert old.new.stats().sent == len(CARRIED)
    assert old.stored() == before


@pytest.mark.full
def test_job_that_was_tried_before_or_that_a_worker_runs_stays_in_arq(old: Old):
    tasks = old.program.folder / "tasks.py"
    tasks.write_text(
        tasks.read_text().replace(
            'print("mail to", to)',
            "import asyncio, arq\n    if to == 'again': raise arq.Retry(defer=9999)\n    await asyncio.sleep(99)",
        )
    )
    old.enqueue({"again": {"args": ("again",)}, "runs": {}})
    worker = old.start_worker()
    try:
        assert eventually(lambda: old.redis.exists("arq:retry:again", "arq:in-progress:runs") == 2, 60)
        assert eventually(lambda: not old.redis.exists("arq:in-progress:again"), 60)
        before = old.stored()
        lines = old.program.forward()
        assert sorted(lines) == ["again left: it was tried before", "runs left: a worker runs it"]
        assert (old.stored(), old.new.stats().sent) == (before, 0)
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()


@pytest.mark.full
def test_killed_program_loses_nothing_and_its_next_run_sends_nothing_twice(old: Old):
    """Killed before the send, and after it; meanwhile, a worker skips the job."""
    old.enqueue({"now": {}, "later": {"_defer_by": 3 * DAY}})
    old.program.forward_killed("mails", "mails.send", before=True)
    worker = old.start_worker()
    try:
        assert eventually(lambda: bool(list(old.redis.scan_iter("*health-check"))), 60)
    finally:
        worker.terminate()
        worker.wait()
    assert old.program.forward() == ["now forwarded", "later forwarded"]

    old.enqueue({"next": {}})
    old.program.forward_killed("mails", "mails.send")
    assert old.program.forward() == ["next forwarded"]
    assert old.new.stats().sent == 3
    assert (old.program.forward(), old.stored()) == ([], {})


@pytest.mark.full
def test_job_that_was_perhaps_never_sent_stays_in_arq_after_a_message_with_its_id_was_handled(old: Old):
    """The program was killed before or after it sent the job: its next run finds the same, and cannot tell."""
    old.enqueue({"id": {}})
    assert old.program.forward() == ["id forwarded"]
    assert old.new.ack(old.new.receive()) == [True]
    old.enqueue({"id": {}})
    before = old.stored()
    old.program.forward_killed("mails", "mails.send", before=True)
    assert old.program.forward() == old.program.forward() == [f"id {HAD}"]
    assert old.stored() == before

    old.redis.flushdb()
    old.enqueue({"next": {}})
    before = old.stored()
    old.program.forward_killed("mails", "mails.send")
    assert old.new.ack(old.new.receive()) == [True]
    assert old.program.forward() == [f"next {HAD}"]
    assert (old.stored(), old.new.stats().sent) == (before, 2)


@pytest.mark.full
def test_job_whose_id_delayq_has_stays_in_arq_even_if_its_payload_is_the_same(old: Old):
    old.enqueue({"taken": {}, "same": {}, "used": {}})
    before = old.stored()
    old.new.send("of the new producers", id="taken")
    old.new.send({"function": "send_mail", "args": ["ann"], "kwargs": {}}, id="same")
    old.new.send("of the new producers", id="used", unique_for=60)
    assert old.new.cancel("used") == "cancelled"
    assert sorted(old.program.forward()) == [f"same {HAS}", f"taken {HAS}", f"used {HAD}"]  # of the same millisecond
    assert old.stored() == before
