"""Handlers that run in processes, which import them from this module."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from delayq import Ack, InvalidInput, Message, Outgoing, Queue, Reject, RetryAfter, StaleReceipt, current_message
from tests.harness.waiting import eventually

IS_CHILD = parent_process() is not None
WHERE = "POOLED_FOLDER"
"""The name of the variable that tells where handlers leave what the tests look at."""

routed = Queue("routed", url="redis://127.0.0.1:1/0")
"""A queue with middleware and a schedule, which its processes find as it is a variable here."""


@routed.middleware.around_delivery
def noted(message: Message) -> Any:
    note("middleware", message)
    yield
    note("after", message)


@routed.cron("0 0 1 1 *", name="yearly")
def every_year(message: Message) -> None:
    note("yearly", message)


@routed.handler
def route(message: Message) -> None:
    note("handler", message)


tasks = Queue("tasks", url="redis://127.0.0.1:1/0")
"""A queue with tasks."""


@tasks.task
def add(number: int, by: int = 1) -> Any:
    """Return what cannot be pickled."""
    message = current_message()
    note(f"add-{number + by}", message)
    return lambda: number + by


@tasks.task
def start_chain(number: int) -> Ack:
    return Ack(then=[add.message(number)])


class Unpicklable(Exception):
    def __reduce__(self) -> Any:
        raise TypeError("no")


@tasks.task(retry_for=OSError)
def fail(how: str) -> None:
    raise {"final": Unpicklable, "again": BlockingIOError}[how](how)


def folder() -> Path:
    return Path(os.environ[WHERE])


def note(name: str, message: Message | None = None) -> None:
    """Leave a line ``name id pid`` for the test."""
    with (folder() / "notes").open("a") as notes:
        notes.write(f"{name}\t{message.id if message else '-'}\t{os.getpid()}\n")


def notes(name: str) -> list[tuple[str, int]]:
    """Return the ids and process ids noted under a name."""
    path = folder() / "notes"
    lines = [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []
    return [(line[1], int(line[2])) for line in lines if line[0] == name]


def fine(message: Message) -> None:
    note("fine", message)


def read(message: Message) -> None:
    assert message.payload is not None
    note("read", message)


def described(message: Message) -> None:
    assert message.slot is None or message.schedule is not None
    assert not any(name.lower().strip().startswith("delayq-") for name in message.headers)
    note("described", message)


def meet(message: Message) -> None:
    """Wait until two of these handlers run at the same time."""
    note("meet", message)
    assert eventually(lambda: len(notes("meet")) == 2)


def stuck_at_first(message: Message) -> None:
    """Never end at the first attempt if the payload says so; otherwise take a little time."""
    note(f"attempt-{message.attempt}", message)
    if message.payload == "computes" and message.attempt == 1:
        compute_for_ever()
    if message.payload == "sleeps" and message.attempt == 1:
        time.sleep(3600)
    if message.payload == "beside":
        time.sleep(0.85)


def compute_for_ever() -> None:
    """Hold the GIL, so that no other thread and no Python signal handler can run."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def die(message: Message) -> None:
    if message.payload == "fine":
        return note("fine", message)
    if message.payload == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if message.payload == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if message.payload == "exit":
        os._exit(3)
    if message.payload == "leave":
        sys.exit(3)
    if message.payload == "memory":
        raise MemoryError("no more")
    if message.payload == "fork":  # the child it leaves behind keeps its end of the pipe open
        if os.fork() == 0:
            time.sleep(60)
        os._exit(4)
    raise Unsendable(message.payload)


class Unsendable(Exception):
    """An error that cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


def fork_first(message: Message) -> None:
    """Fork a process that ends while the next message is handled, as the payload says; that message then fails."""
    if message.id == "next":
        note("next", message)
        ended = eventually(lambda: os.waitpid(-1, os.WNOHANG)[0] > 0)
        raise ValueError(f"of its own, {ended}")
    if os.fork() == 0:
        assert eventually(lambda: bool(notes("next")))
        match message.payload:
            case "exit":
                sys.exit(0)
            case "raise":
                raise ValueError("of the one that was forked")
            case "ack":
                with contextlib.suppress(InvalidInput):
                    message.ack()


def settle(message: Message) -> Any:
    """Do what the payload says, and note whether the message then says that it failed."""
    returned = _obey(message)
    if message.failed:
        note("failed", message)
    return returned


def _obey(message: Message) -> Any:
    match message.payload:
        case "ack":
            message.ack()
            with contextlib.suppress(StaleReceipt):
                message.ack()
                note("acked-twice", message)
        case "ack-and-fail":
            message.ack()
            raise ValueError("too late")
        case "ack-then":
            message.ack(then=[Outgoing("next", id=f"next to {message.id}")])
        case "nack":
            message.nack(delay=3600, error="later")
        case "reject":
            message.reject("of no use")
        case "release":
            message.release()
        case "ask-rubbish":
            message.ack(then=[Outgoing(threading.Lock())])
        case "ask-wrongly":
            message.extend(-1)
        case "extend":
            before = message.lease_until
            message.extend(1000)
            assert message.lease_until > before
            assert message.held_until > time.monotonic() + 900
        case _:
            return decide(message)
    return None


def reject(message: Message) -> None:
    message.reject("by hand")


def decide(message: Message) -> Any:
    """Return or raise what the payload says."""
    match message.payload:
        case "return-then":
            return Ack(then=[Outgoing("next", id=f"next to {message.id}")])
        case "return-rubbish":
            return Ack(then=[Outgoing(threading.Lock())])
        case "raise-reject":
            raise Reject("no good")
        case "raise-later":
            raise RetryAfter(3600)
        case "return-false":
            return False
        case _:
            note("next", message)
    return None


def tell_key(message: Message) -> None:
    note(f"key-{message.concurrency_key}", message)


def send_on(message: Message) -> None:
    """Send to another queue, over this process's own connection."""
    with Queue("onward", url=str(message.payload)) as queue:
        queue.send(os.getpid())


@dataclass
class Order:
    number: int


def take_order(order: Order) -> None:
    note(f"order-{order.number}")


def begin() -> None:
    note("begin")


def begin_if_allowed() -> None:
    if (folder() / "refuse").exists():
        raise RuntimeError("refused")


def begin_slowly() -> None:
    """Let the first process begin at once, and its successors when the test allows it."""
    note("begin")
    if len(notes("begin")) > 1:
        assert eventually((folder() / "begin").exists)


def begin_if_not_held() -> None:
    """Begin once the test holds nothing up."""
    note("begin")
    assert eventually(lambda: not (folder() / "hold").exists())


def begin_larger() -> None:
    """Let successors of the first process have 300 MiB more from the start, unless the test has ended that."""
    note("begin")
    if len(notes("begin")) > 1 and not (folder() / "small").exists():
        KEPT.append(b"x" * (300 << 20))


def grow(message: Message) -> None:
    """Keep as many MiB as the payload says."""
    note("grow", message)
    KEPT.append(b"x" * (message.payload << 20))


KEPT: list[bytes] = []


def slow(message: Message) -> None:
    note("started", message)
    assert eventually((folder() / "go").exists)
    note("ended", message)


def slow_with_program(message: Message) -> None:
    """Run beside a program that this handler has started."""
    program = subprocess.Popen(["sleep", "3600"])
    (folder() / "program").write_text(str(program.pid))
    note("started", message)
    compute_for_ever()


async def awaited(message: Message) -> None:
    note("awaited", message)


def fail_in_depth(message: Message) -> None:
    raise ValueError(message.id)


def stubborn(message: Message) -> None:
    """Start a child, and ignore SIGTERM in both; a payload of "quick" only notes its process."""
    if message.payload == "quick":
        note("quick", message)
        return
    if message.payload == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "300"])
    note(f"child-{child.pid}", message)
    note("stubborn", message)
    time.sleep(300)
