"""Processes that use an embedded store and can be killed, and a view of what runs on the store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from delayq.transport.embedded import keeper
from tests.harness.servers import server_binaries
from tests.harness.waiting import eventually

USER = """
import json, os, sys, structlog
from pathlib import Path
from delayq.transport.embedded import open_store

structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))

def serve(client):
    for line in sys.stdin:
        words = json.loads(line)
        if words == ["fork"]:
            if os.fork():
                os._exit(0)
            reply = os.getpid()
        elif words == ["close"]:
            reply = client.close()
        elif words == ["spawn"]:
            import subprocess
            reply = subprocess.Popen(["sleep", "60"], stdin=-3, stdout=-3, close_fds=False).pid
        else:
            reply = client.execute_command(*words)
        print(json.dumps(reply, default=bytes.decode), flush=True)

client = open_store(Path(sys.argv[1]))
print(json.dumps("open"), flush=True)
serve(client)
"""


class User:
    """A process that has a store open, and runs the commands it is given."""

    def __init__(self, folder: Path, wait: bool, new_session: bool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=new_session,
        )
        if wait:
            self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or '"it ended"')

    def run(self, *words: object) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self.read()

    def leave(self) -> None:
        """End cleanly."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait() == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


class Watched:
    """A folder for a store that keeps track of its users and processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users: list[User] = []
        self.seen: set[int] = set()

    def user(self, wait: bool = True, new_session: bool = False) -> User:
        user = User(self.folder, wait, new_session)
        self.users.append(user)
        if wait:
            self.look()
        return user

    def look(self) -> dict[str, Any]:
        """What the keeper records about itself and its server."""
        assert eventually((self.folder / keeper.ADDRESS).exists)
        address: dict[str, Any] = json.loads((self.folder / keeper.ADDRESS).read_text())
        self.seen |= {address["pid"], address["keeper"]}
        return address

    def kill(self, which: str) -> None:
        os.kill(self.look()[which], signal.SIGKILL)

    def is_at_rest(self) -> bool:
        """Whether all known processes are gone, and nothing else holds a lock."""
        locks = [self.folder / name for name in (keeper.USERS_LOCK, keeper.KEEPER_LOCK, keeper.SERVER_LOCK)]
        return not any(map(is_alive, self.seen)) and not any(is_locked(path) for path in locks if path.exists())

    def close(self) -> None:
        for user in self.users:
            user.kill()


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent to notice."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    try:
        return not stat.parent.parent.joinpath("stat").exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it has just ended, before or after the file was opened
        return False


def is_locked(path: Path) -> bool:
    with path.open("rb") as file:
        return not keeper.try_lock(file.fileno())


def starts_in_log(watched: Watched) -> int:
    return (watched.folder / keeper.LOG).read_text().count(" is starting oO0")  # Redis or Valkey


def use_program(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    if version not in server_binaries():
        pytest.skip(f"no redis-server {version} here")
    monkeypatch.setenv("DELAYQ_REDIS_SERVER", str(server_binaries()[version]))


def script(folder: Path, version: str, otherwise: str = "exit 1") -> str:
    """Write a program that looks like a server of this version; return its path."""
    path = folder / "program"
    path.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo "{version}"; exit; fi\n{otherwise}\n')
    path.chmod(0o700)
    return str(path)
