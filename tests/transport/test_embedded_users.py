"""What counts as a user of a store, and what does not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from delayq.transport.embedded import open_store
from tests.harness.stores import Watched, is_alive, is_locked
from tests.harness.waiting import eventually


def test_closed_client_is_not_a_user_and_can_become_one_again(folder: Path):
    watched = Watched(folder)
    client = open_store(folder)
    client.set("key", "value")
    watched.look()
    client.close()
    assert eventually(watched.is_at_rest)
    assert client.get("key") == b"value"
    watched.look()
    client.close()
    assert eventually(watched.is_at_rest)


def test_garbage_collected_client_is_not_a_user(folder: Path):
    watched = Watched(folder)
    assert open_store(folder).ping()
    assert eventually(watched.is_at_rest)


@pytest.mark.full
def test_forked_process_is_a_separate_user(watched: Watched):
    user = watched.user()
    user.run("SET", "key", "value")
    pid = watched.look()["pid"]
    child = user.run("fork")  # the child keeps serving; its parent ends
    assert user.process.wait() == 0
    time.sleep(0.3)
    assert is_alive(pid)
    assert user.run("GET", "key") == "value"
    watched.kill("pid")
    assert user.run("GET", "key") == "value"
    os.kill(child, signal.SIGKILL)
    assert eventually(watched.is_at_rest)


LOCK_AND_FORK = """
import fcntl, os, sys, time
from pathlib import Path
from delayq.transport.embedded.file_lock import FileLock

lock = FileLock(Path(sys.argv[1]), fcntl.LOCK_EX)
parent_is_done, done = os.pipe()
if os.fork() == 0:
    os.read(parent_is_done, 1)
    os.write(1, b"here")
    os.close(1)
    time.sleep(60)
lock.close()
os.write(done, b".")
print(os.read(0, 1))
"""


def test_process_forked_while_a_keeper_starts_does_not_hold_its_lock(folder: Path):
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", LOCK_AND_FORK, folder / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.read(4) == b"here"
        assert not is_locked(folder / "lock")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.full
def test_programs_that_a_user_starts_are_not_users(watched: Watched):
    user = watched.user()
    program = user.run("spawn")
    user.kill()
    try:
        assert eventually(watched.is_at_rest)
        assert is_alive(program)
    finally:
        os.kill(program, signal.SIGKILL)


def test_signals_that_a_user_blocks_are_not_blocked_in_its_keeper(folder: Path):
    watched = Watched(folder)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGCHLD})
    try:
        open_store(folder).close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert eventually(watched.is_at_rest)
