"""Consumers under a supervisor, where some messages kill the process that handles them.

Usage: python -m tests.harness.chaos.programs.poison JSON
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import msgspec
from delayq.cli.consume.supervisor import SUPERVISOR_ENV, Supervisor, is_orphan

from delayq import Consumer, Message, Queue, backoff
from tests.harness.chaos.history import Journal
from tests.harness.chaos.leaving import leave_at_sigterm

ROOM_BYTES = 256 * 1024 * 1024  # memory that the process may still allocate up to its limit
PIECE_BYTES = 16 * 1024 * 1024


class Task(msgspec.Struct, kw_only=True):
    """The task of the consumers.

    Attributes:
        processes: the number of processes under the supervisor.
        work: seconds that a handler takes for other messages.
    """

    url: str
    queue: str
    journals: str
    lease: float
    max_retries: int
    processes: int
    concurrency: int = 4
    work: float = 0.005


def leave() -> NoReturn:
    os._exit(7)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def overuse() -> None:
    """Use memory up to a limit, like C code that never checks its allocations."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM_BYTES, resource.RLIM_INFINITY))
    allocate = ctypes.CDLL(None).malloc
    allocate.restype = ctypes.c_void_p
    while True:
        ctypes.memset(allocate(ctypes.c_size_t(PIECE_BYTES)), 1, PIECE_BYTES)


def be_killed() -> None:
    """Use memory until the process is killed from outside, as the kernel or a container does."""
    held: list[bytes] = []
    while len(held) * PIECE_BYTES < ROOM_BYTES:
        held.append(b"1" * PIECE_BYTES)
    os.kill(os.getpid(), signal.SIGKILL)


def ask_too_much() -> None:
    """Ask for more memory than there is, like Python code, which gets an exception."""
    bytearray(1 << 62)


DEADLY: dict[str, Callable[[], None]] = {
    "exit": leave,
    "segfault": crash,
    "memory-limit": overuse,
    "memory-kill": be_killed,
}


def end_with_supervisor() -> None:
    while not is_orphan(os.environ[SUPERVISOR_ENV]):
        time.sleep(0.5)
    os._exit(1)


def main(task: Task) -> None:
    leave_at_sigterm()  # until the consumer handles signals itself
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    threading.Thread(target=end_with_supervisor, daemon=True).start()
    journal = Journal(Path(task.journals) / f"consumer-{os.getpid()}.jsonl")
    queue = Queue(task.queue, url=task.url, lease=task.lease, backoff=backoff.fixed(0.05), max_retries=task.max_retries)

    def handle(message: Message) -> None:
        journal.delivered(message)
        if message.payload in DEADLY:
            journal.note("fault", note=message.payload)
            DEADLY[message.payload]()
        try:
            if message.payload == "memory-error":
                ask_too_much()
            time.sleep(task.work)
        except MemoryError:
            journal.note("failed", message.id, attempt=message.attempt)
            raise
        journal.note("finished", message.id, attempt=message.attempt)

    Consumer(queue, handle, concurrency=task.concurrency).run()


if __name__ == "__main__":
    task = msgspec.json.decode(sys.argv[1], type=Task)
    if SUPERVISOR_ENV in os.environ:
        main(task)
    else:
        command = [sys.executable, "-m", "tests.harness.chaos.programs.poison", sys.argv[1]]
        sys.exit(Supervisor(command, task.processes).run())
