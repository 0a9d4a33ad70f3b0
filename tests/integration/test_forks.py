"""A process forked while another thread makes its first connection, or forked by a handler."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.harness.servers import RedisServer

FORKING = """
import asyncio, os, signal, sys, threading
import delayq, delayq.aio, redis
from delayq.late_import import late_import

url, face = sys.argv[1:]
importing, forked = threading.Event(), threading.Event()
is_late = face.startswith("late")
if face != "late name":
    delayq.Queue, delayq.aio.Queue  # as "from delayq import Queue" does

def watch(event, args):
    if event != "exec" or threading.current_thread() is not thread:
        return
    if bool(late_import._running) == is_late:  # the body of a module: its lock is held
        first = not importing.is_set()
        importing.set()
        if first or not is_late:
            forked.wait(1 if is_late else None)  # the fork waits for a late import, so this ends first

client = redis.Redis(connection_pool=redis.ConnectionPool.from_url(url))

def send():
    if face == "aio":
        asyncio.run(delayq.aio.Queue("jobs", url=url).send("x"))
    elif face == "client":
        delayq.Queue("jobs", redis=client).send("x")
    elif face == "late part":
        delayq.Queue("jobs", url=url).receive()
    else:
        delayq.Queue("jobs", url=url).send("x")

thread = threading.Thread(target=send)
sys.addaudithook(watch)
thread.start()
while thread.is_alive() and not importing.wait(0.01):
    pass
child = os.fork()
if child == 0:
    signal.alarm(120)
    send()
    os._exit(0)
forked.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


# With an empty path, redis-py imports OpenTelemetry's SDK (tests/harness/python_start).
@pytest.mark.parametrize("path", [None, pytest.param("", marks=pytest.mark.full)], ids=["usual", "SDK"])
@pytest.mark.parametrize(
    "face",
    ["sync", pytest.param("aio", marks=pytest.mark.full), "client"]
    + [pytest.param(face, marks=pytest.mark.full) for face in ("late name", "late part")],
)
def test_child_forked_during_the_first_connection_can_send(face: str, path: str | None, start_server: StartServer):
    url = f"redis://localhost:{start_server(port=True).port}"
    command = [sys.executable, "-c", FORKING, url, face]
    environment = os.environ | ({} if path is None else {"PYTHONPATH": path})
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=240, check=False, env=environment)
    assert done.returncode == 0, done.stderr


WAITING_FOR_EACH_OTHER = """
import os, signal, sys, threading
import delayq.late_import as late

late.LONGEST_WAIT = 0.1
begun, forked = threading.Event(), threading.Event()

def load():  # what the forking thread is importing, so that this cannot end before the fork
    with late.late_import:
        begun.set()
        forked.wait()

thread = threading.Thread(target=load)
thread.start()
begun.wait()
signal.alarm(60)
child = os.fork()
if child == 0:
    late.LONGEST_WAIT = 600  # the parent's thread is not here: nobody waits for it
    signal.alarm(60)
    import delayq
    delayq.Queue
    os._exit(os.waitstatus_to_exitcode(os.waitpid(os.fork() or os._exit(0), 0)[1]))
forked.set()
thread.join()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_fork_waits_only_for_a_while_for_an_import_that_waits_for_it():
    done = subprocess.run([sys.executable, "-c", WAITING_FOR_EACH_OTHER], capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


FORKING_HANDLERS = """
import asyncio, os, signal, sys
import delayq
from delayq import Middleware, NewRecord, Outgoing, aio

url, kind, how = sys.argv[1:]
COUNT = 20
me, codes = os.getpid(), []
middleware = Middleware()

def note(what):
    with open("notes", "a") as notes:
        notes.write(f"{os.getpid()} {what}\\n")

@middleware.around_delivery
def around(message):
    yield
    note(f"after {message.payload}")

def handle(message):
    handle_batch([message])

def handle_batch(messages):
    for message in messages:
        note(message.payload)
    if any(message.payload == COUNT // 2 for message in messages):
        child = os.fork()
        if child:
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            return
        signal.alarm(120)
        if how == "raise":
            raise ValueError("of the child")
        if how == "exit":
            sys.exit(7)

async def handle_async(message):
    handle(message)
    if how == "await":
        await asyncio.sleep(0)

async def handle_batch_async(messages):
    handle_batch(messages)

def blocking():
    queue = delayq.Queue("jobs", url=url, middleware=middleware)
    if kind == "batch":
        queue.batch_handler(max_messages=7)(handle_batch)
    queue.send_many(Outgoing(number) for number in range(COUNT))
    delayq.Consumer(queue, None if kind == "batch" else handle, concurrency=1).drain()
    return queue.stats()

async def awaited():
    async with aio.Queue("jobs", url=url, middleware=middleware) as queue:
        if kind == "mixed":
            queue.cron("@yearly", name="other")(handle_async)
        if kind == "async-batch":
            queue.batch_handler(max_messages=7)(handle_batch_async)
        await queue.send_many(Outgoing(number) for number in range(COUNT))
        handlers = {"async": handle_async, "async-batch": None, "mixed": handle, "plain": handle}
        await aio.Consumer(queue, handlers[kind], concurrency=1).drain()
        return await queue.stats()

def topic():
    topic = delayq.Topic("jobs", url=url)
    group = topic.group("all", start="0")
    topic.publish_many(NewRecord(number) for number in range(COUNT))
    delayq.TopicConsumer(group, handle, concurrency=1, middleware=middleware).drain()
    return group.unacked()

left = topic() if kind == "topic" else blocking() if kind in ("thread", "batch") else asyncio.run(awaited())
assert os.getpid() == me, "the child runs on"
print(*codes, left if kind == "topic" else (left.acked, left.nacked, left.lease_lost))
"""


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("thread", "raise"),
        ("batch", "return"),
        ("async", "await"),
        *(
            pytest.param(*case, marks=pytest.mark.full)
            for case in [
                *product(["thread", "topic", "async", "async-batch", "mixed", "plain"], ["return"]),
                *[("thread", "exit"), ("async", "raise"), ("async", "exit")],
            ]
        ),
    ],
)
def test_process_forked_by_a_handler_ends_with_the_handler_and_handles_nothing(
    redis_server: RedisServer, tmp_path: Path, kind: str, how: str
):
    command = [sys.executable, "-W", "ignore", "-c", FORKING_HANDLERS, redis_server.url, kind, how]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        out, err = program.communicate(timeout=240)
    notes = [line.split(" ", 1) for line in (tmp_path / "notes").read_text().splitlines()]
    assert {process for process, _ in notes} == {str(program.pid)}, err
    assert sorted(note for _, note in notes) == sorted(f"{kind}{n}" for n in range(20) for kind in ("", "after "))
    code = {"return": 0, "raise": 1, "exit": 7, "await": 1}[how]
    assert out.splitlines() == [f"{code} {[] if kind == 'topic' else (20, 0, 0)}"], err
    assert [error for error in ("ValueError: of the child", "cannot await") if error in err] == {
        "raise": ["ValueError: of the child"],
        "await": ["cannot await"],
    }.get(how, [])


WAYS = ["ack", "nack", "extend", "release", "reject", "ack then", "queue.ack", "queue.ack of many", "reject later"]

SETTLING = """
import asyncio, contextlib, multiprocessing, os, sys, threading
import delayq
from delayq import Outgoing, aio
from delayq.errors import InvalidInput

url, kind, *ways = sys.argv[1:]

def call(queue, message, way):
    return {
        "ack": lambda: message.ack(),
        "ack then": lambda: message.ack(then=[Outgoing("next")]),
        "nack": lambda: message.nack(),
        "extend": lambda: message.extend(50),
        "release": lambda: message.release(),
        "reject": lambda: message.reject(),
        "queue.ack": lambda: queue.ack(message),
        "queue.ack of many": lambda: queue.ack([message]),
        "reject later": lambda: queue.settle(message, delayq.model.outcome.dead("x", None)),
    }[way]()

def refused(queue, message, way):
    try:
        returned = call(queue, message, way)
        if asyncio.iscoroutine(returned):
            returned.send(None)  # as far as it comes without its event loop
    except InvalidInput:
        return True
    return False

def handle(message):
    for way in ways:
        child = os.fork()
        if child == 0:
            os._exit(0 if refused(queue, message, way) else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code:
            print(way, "is not refused", flush=True)

async def handle_async(message):
    handle(message)

async def receive_async():
    async with queue:
        await queue.send("x")
        handle((await queue.receive())[0])
        return await queue.stats()

async def consume_async():
    async with queue:
        await queue.send("x")
        await aio.Consumer(queue, handle_async).drain()
        return await queue.stats()

queue = (aio if kind.startswith("aio") else delayq).Queue("jobs", url=url)

if __name__ == "__main__":
    if kind == "aio receive":
        stats = asyncio.run(receive_async())
    elif kind == "aio consume":
        stats = asyncio.run(consume_async())
    else:
        queue.send("x")
        if kind == "receive":
            handle(queue.receive()[0])
        else:
            delayq.Consumer(queue, handle, pool="process" if kind == "processes" else "thread").drain()
        stats = queue.stats()
    print(stats.acked, stats.nacked, stats.released, stats.dead, stats.sent)
"""


@pytest.mark.parametrize(
    "kind",
    [
        *("receive", "aio consume"),
        *(pytest.param(kind, marks=pytest.mark.full) for kind in ("consume", "processes", "aio receive")),
    ],
)
def test_forked_process_settles_nothing(redis_server: RedisServer, tmp_path: Path, kind: str):
    program = tmp_path / "settling.py"
    program.write_text(SETTLING)
    command = [sys.executable, "-W", "ignore", program.name, redis_server.url, kind, *WAYS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    acked = 0 if kind.endswith("receive") else 1
    assert done.stdout == f"{acked} 0 0 0 1\n", done.stderr
