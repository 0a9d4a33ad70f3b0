"""The process that keeps the server of an embedded store: starts it, restarts it, and stops it after the last user.

    python -I -S keeper.py FOLDER SERVER VERSION STALE_SOCKET [SETTING …]

It runs as a plain file, without delayq on its path, and imports only the standard library. The store's folder contains

    users.lock    share-locked by every process that has the store open; the kernel unlocks it if one is killed
    keeper.lock   locked by the keeper; it inherits the lock from the process that starts it, so there is only one
    server.lock   locked by the keeper, and inherited by its server, so that two servers never write the same files
    server.json   the address of the server once it is ready
    server.log    the output of server and keeper

The keeper waits for an exclusive lock on users.lock. When it gets the lock, the last user is gone. A new user then
waits until the server has shut down, and starts another.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

USERS_LOCK = "users.lock"
KEEPER_LOCK = "keeper.lock"
SERVER_LOCK = "server.lock"
ADDRESS = "server.json"
LOG = "server.log"

CONFIG = {
    "port": "0",
    "unixsocketperm": "700",
    "appendonly": "yes",
    # A write is on the disk before it is answered. With "everysec", Redis delays writes while the disk is busy, but
    # answers: of 25 kills of the server on a busy disk, 2 lost up to 5,624 writes.
    "appendfsync": "always",
    "save": "",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
}
SIGNALS = {signal.SIGTERM, signal.SIGCHLD}
STRAY_SECONDS = 30.0  # until the server of a killed keeper must be gone
STOP_SECONDS = 30.0  # until its own server must be gone; then it is killed
STABLE_SECONDS = 1.0  # a server that ends sooner is restarted more and more slowly, to save the machine's resources
LONGEST_PAUSE = 1.0
# A server that took longer than this to load waits for another user, so that a loop of commands loads it only once.
QUICK_SECONDS = 0.1
LINGER = 10  # times the additional load time
LONGEST_LINGER = 10.0


class Keeper:
    """One run of the keeper.

    Args:
        folder: the store.
        program: the server program.
        version: its version, announced to those who open the store.
        stale: the socket of the previous server if its keeper was killed; or "".
        settings: further arguments of the server.
    """

    def __init__(self, folder: Path, program: str, version: str, stale: str, *settings: str) -> None:
        self.folder = folder
        self.program = program
        self.version = version
        self.stale = stale
        self.settings = settings
        self.closing = False
        self.load_seconds = 0.0

    def run(self) -> None:
        """Serve until the last user is gone, or until SIGTERM; exit at once if the server does not start."""
        for number in SIGNALS:  # a signal without a handler may be dropped before the wait begins
            signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, SIGNALS)
        self.lock = self.lock_server()
        self.socket = self.choose_socket()
        threading.Thread(target=self.await_last_user, daemon=True).start()
        try:
            self.serve()
        finally:
            self.withdraw()
            remove_socket(self.socket, self.folder)

    def lock_server(self) -> int:
        """Wait until the server of a killed keeper is gone. On Linux the kernel stops it; elsewhere this asks it to."""
        lock = os.open(self.folder / SERVER_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        deadline = time.monotonic() + STRAY_SECONDS
        while not try_lock(lock):
            ask(self.stale, "SHUTDOWN NOSAVE")
            if time.monotonic() > deadline:
                sys.exit(f"the server of an earlier keeper holds {SERVER_LOCK} and does not stop: stop it by hand")
            time.sleep(0.01)
        if self.stale:
            remove_socket(Path(self.stale), self.folder)
        return lock

    def choose_socket(self) -> Path:
        for place in self.places():
            path = place / f"server-{os.getpid()}.sock"  # unique, as an ending keeper removes its own
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
                probe.bind(str(path))
                path.unlink()
                return path
        sys.exit(f"no socket can be created in {self.folder} or in {tempfile.gettempdir()}")

    def places(self) -> Iterator[Path]:
        yield self.folder
        # The folder's path is too long for a socket, or its file system has no sockets.
        for place in (tempfile.gettempdir(), "/tmp"):
            private = Path(tempfile.mkdtemp(prefix="delayq-", dir=place))
            yield private
            private.rmdir()

    def await_last_user(self) -> None:
        users = os.open(self.folder / USERS_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        while True:
            fcntl.flock(users, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(min(LINGER * max(self.load_seconds - QUICK_SECONDS, 0), LONGEST_LINGER))
            if try_lock(users):
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def serve(self) -> None:
        pause = 0.0
        while not self.is_closing():
            time.sleep(pause)
            started = time.monotonic()
            server = self.start()
            ready = self.await_ready(server)
            code = self.await_end(server)
            self.withdraw()
            if self.is_closing():
                return
            if not ready:
                sys.exit(f"the server did not start: it exited with {code}")
            say(f"the server exited with {code}: starting it again")
            pause = 0.0 if time.monotonic() - started > STABLE_SECONDS else min(2 * pause + 0.05, LONGEST_PAUSE)

    def start(self) -> subprocess.Popen[bytes]:
        config = CONFIG | {"dir": str(self.folder), "unixsocket": str(self.socket)}
        words = [word for name, value in config.items() for word in (f"--{name}", value)]
        return subprocess.Popen(
            [self.program, *words, *self.settings],
            stdin=subprocess.DEVNULL,
            pass_fds=[self.lock],
            preexec_fn=end_with_parent(),  # noqa: PLW1509  # safe: the other thread does nothing but wait in the kernel
        )

    def await_ready(self, server: subprocess.Popen[bytes]) -> bool:
        """Return whether the server has loaded its data; if so, announce it."""
        started = time.monotonic()
        while server.poll() is None and not self.is_closing():
            if ask(str(self.socket), "PING").startswith(b"+PONG"):
                self.load_seconds = time.monotonic() - started
                self.announce(server.pid)
                return True
            time.sleep(min(0.002 + (time.monotonic() - started) / 50, 0.05))
        return False

    def await_end(self, server: subprocess.Popen[bytes]) -> int:
        while server.poll() is None and not self.is_closing():
            self.closing = signal.sigwait(SIGNALS) == signal.SIGTERM
        if server.poll() is None:
            ask(str(self.socket), "SHUTDOWN NOSAVE")  # the log is flushed; SIGTERM would be seen up to 100 ms later
            server.terminate()
        try:
            return server.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            say("the server does not stop: killing it")
            server.kill()
            return server.wait()

    def is_closing(self) -> bool:
        self.closing = self.closing or signal.SIGTERM in signal.sigpending()
        return self.closing

    def announce(self, pid: int) -> None:
        address = {"socket": str(self.socket), "server": self.version, "pid": pid, "keeper": os.getpid()}
        new = self.folder / f"{ADDRESS}.new"
        new.write_text(json.dumps(address), "utf-8")
        new.replace(self.folder / ADDRESS)

    def withdraw(self) -> None:
        """Remove the address, unless the folder was deleted and created again and it belongs to another keeper."""
        path = self.folder / ADDRESS
        with contextlib.suppress(OSError, ValueError):
            if json.loads(path.read_text("utf-8"))["keeper"] == os.getpid():
                path.unlink()


def try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def ask(path: str, command: str) -> bytes:
    """Return the beginning of the server's reply; empty if there is none."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        connection.connect(path)
        connection.sendall(f"{command}\r\n".encode())
        return connection.recv(64)
    return b""


def end_with_parent() -> Callable[[], None]:
    """Return what the server runs before it starts: on Linux, request SIGTERM when the keeper dies, even by kill -9."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    keeper = os.getpid()

    def prepare() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if prctl is not None:
            prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
        if os.getppid() != keeper:
            raise ProcessLookupError("the keeper died first")

    return prepare


def remove_socket(path: Path, folder: Path) -> None:
    """Remove a socket, and the private folder made for it."""
    path.unlink(missing_ok=True)
    if path.parent != folder:
        with contextlib.suppress(OSError):
            path.parent.rmdir()


def say(what: str) -> None:
    sys.stdout.write(f"keeper {os.getpid()}: {what}\n")
    sys.stdout.flush()


def main(folder: str, program: str, version: str, stale: str, *settings: str) -> None:
    """Detach from the parent process, so that it has no child to wait for, and run."""
    if os.fork() == 0:
        Keeper(Path(folder), program, version, stale, *settings).run()


if __name__ == "__main__":
    os.umask(0o077)
    main(*sys.argv[1:])
