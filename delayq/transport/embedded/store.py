"""The embedded store as a process uses it: its lock, and the start of the keeper."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from delayq.errors import StoreError
from delayq.log import log
from delayq.transport.embedded import keeper
from delayq.transport.embedded.binaries import find_server, read_version, write_version
from delayq.transport.embedded.file_lock import FileLock

START_SECONDS = 60.0  # 20 million messages load in that time; a new store starts in a twentieth of a second
LEAVE_SECONDS = 90.0  # for a stopping keeper, which kills a hanging server after 30 s
GO_SECONDS = 1.0
CONTAINER_FILES = (Path("/.dockerenv"), Path("/run/.containerenv"))  # of Docker and Podman
LONGEST_LOG = 1_000_000  # bytes
LOG_LINES = 5  # lines of it in an error
NEEDED_BYTES = 65_536  # free on the disk, or it counts as full
LOOK_SECONDS = 1.0  # between two checks that the folder is still in its place


class Address(NamedTuple):
    """Where the server of a store listens."""

    socket: str
    server: str
    pid: int


class Store:
    """A folder with its own server. Creating the object does not touch the folder.

    Args:
        folder: the store.
        is_converted: start the server even if Redis wrote files that Valkey reads only with an option.
    """

    def __init__(self, folder: Path, is_converted: bool = False) -> None:
        self.folder = folder
        self._is_converted = is_converted
        self._users: FileLock | None = None
        self._look_at = 0.0
        self._is_astray = False

    def __repr__(self) -> str:
        return f"<Store {self.folder}>"

    def join(self) -> None:
        """Become a user of the store, which keeps its server running. A second call changes nothing."""
        self._look_at = 0.0
        self.look()
        if self._users is None or self._is_astray:
            with self._explained():
                self._make_folder()
                self._users = self._lock_users()
                self._is_astray = False

    def look(self) -> None:
        """Log an error if the folder was moved or deleted while in use: others who open it then find another store."""
        users = self._users  # another thread may leave
        if users is None or self._is_astray or time.monotonic() < self._look_at:
            return
        self._look_at = time.monotonic() + LOOK_SECONDS
        self._is_astray = users.is_astray
        if self._is_astray:
            log.error("embedded store moved or deleted", path=str(self.folder))

    def leave(self) -> None:
        """Stop being a user; a process forked from this one still is one.

        The last user waits up to a second for the server to end, as the caller may want to remove the folder.
        """
        users, self._users = self._users, None
        if users is not None:
            users.close()
            deadline = time.monotonic() + GO_SECONDS
            while self._is_ending() and time.monotonic() < deadline:
                time.sleep(0.002)

    def address(self) -> Address | None:
        """The address of the server that was last ready; None before that, or after an orderly shutdown."""
        try:
            known = json.loads((self.folder / keeper.ADDRESS).read_text("utf-8"))
            return Address(known["socket"], known["server"], known["pid"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):  # a crashed machine may leave half a file
            return None

    def start(self) -> Address:
        """Return the server's address; start a server if there is none. Several processes may do so at once.

        Raises:
            NoEmbeddedServer, StoreTooNew, StoreError
        """
        log_begin: int | None = None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with self._explained():
                lock = self._lock_keeper()
                if lock is not None:  # no keeper is running or being started
                    with lock:
                        if log_begin is not None:
                            full = "" if self._has_room() else " because its disk is full: make room"
                            raise StoreError(
                                f"the server of the store {self.folder} ended{full}:\n{self._log_from(log_begin)}"
                            )
                        log_begin = self._start_keeper(lock)
            address = self.address()
            if address is not None and _accepts(address.socket):
                return address
            time.sleep(0.005)
        raise StoreError(
            f"the server of the store {self.folder} is not ready after {START_SECONDS:.0f} s, perhaps because it is "
            f"still loading: check {keeper.LOG} there, and try again"
        )

    def _is_ending(self) -> bool:
        """Whether the keeper is running and the store has no users."""
        if not self.folder.is_dir():
            return False
        keepers = self._lock_keeper()
        if keepers is not None:
            keepers.close()
            return False
        with contextlib.suppress(BlockingIOError):
            FileLock(self.folder / keeper.USERS_LOCK, fcntl.LOCK_EX).close()
            return True  # the keeper has not noticed yet
        with contextlib.suppress(BlockingIOError):
            FileLock(self.folder / keeper.USERS_LOCK, fcntl.LOCK_SH).close()
            return False  # others use it
        return True

    def _make_folder(self) -> None:
        if not self.folder.is_dir():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self.folder / ".gitignore").write_text("*\n", "utf-8")

    def _lock_users(self) -> FileLock:
        deadline = time.monotonic() + LEAVE_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                return FileLock(self.folder / keeper.USERS_LOCK, fcntl.LOCK_SH)
            time.sleep(0.002)  # the last user is gone, and the server is ending
        raise StoreError(
            f"the keeper of the store {self.folder} is stopping its server, but does not finish: stop both by hand"
        )

    def _lock_keeper(self) -> FileLock | None:
        try:
            return FileLock(self.folder / keeper.KEEPER_LOCK, fcntl.LOCK_EX)
        except BlockingIOError:
            return None

    def _start_keeper(self, lock: FileLock) -> int:
        """Start the keeper, which inherits the lock; return where its log begins."""
        written = read_version(self.folder)
        server = find_server(self.folder, None if self._is_converted else written)
        if server.version != written and not self._is_converted:
            write_version(self.folder, server.version)
        if written is None and self._is_lost_with_container():
            log.warning(
                "new embedded store in a container",
                path=str(self.folder),
                remedy="set DELAYQ_URL to a server, or DELAYQ_HOME to a folder on a volume",
            )
        stale = self.address()
        (self.folder / keeper.ADDRESS).unlink(missing_ok=True)
        words = [self.folder, server.path, server.version, stale.socket if stale else ""]
        if self._is_converted:
            words += ["--rdb-version-check", "relaxed"]
        with self._open_log() as out:
            begin = out.tell()
            subprocess.run(
                [_python(), "-I", "-S", keeper.__file__, *map(str, words)],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                start_new_session=True,
                pass_fds=[lock.file],
                check=False,  # its end, and so the lock, tells
            )
        return begin

    def _is_lost_with_container(self) -> bool:
        """Whether this is a container and the store's folder is not configured."""
        if os.environ.get("DELAYQ_HOME") or self.folder != Path(".delayq").absolute():
            return False
        return "KUBERNETES_SERVICE_HOST" in os.environ or any(path.exists() for path in CONTAINER_FILES)

    def _open_log(self) -> BinaryIO:
        path = self.folder / keeper.LOG
        if path.exists() and path.stat().st_size > LONGEST_LOG:
            path.replace(path.with_suffix(".old"))
        return path.open("ab")

    def _log_from(self, begin: int) -> str:
        with (self.folder / keeper.LOG).open("rb") as file:
            file.seek(begin)
            return "\n".join(file.read().decode(errors="replace").splitlines()[-LOG_LINES:])

    def _has_room(self) -> bool:
        """Whether the disk has free space; a server that ends because it has none cannot write that into its log."""
        try:
            with tempfile.TemporaryFile(dir=self.folder) as file:
                file.write(bytes(NEEDED_BYTES))
        except OSError as error:
            return error.errno not in {errno.ENOSPC, errno.EDQUOT}
        return True

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = "a folder on a local disk that you can write to"
            raise StoreError(
                f"the store {self.folder} cannot be used: {error}; name {where}, in DELAYQ_HOME or as embedded:///path"
            ) from error


def _accepts(path: str) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        return True
    return False


@functools.cache
def _python() -> str:
    """Return the interpreter. In programs that embed Python, sys.executable is the program itself."""
    if "python" in Path(sys.executable or "").name or "pypy" in Path(sys.executable or "").name:
        return sys.executable
    found = shutil.which(
        "python3", path=os.pathsep.join([f"{sys.exec_prefix}/bin", os.environ.get("PATH", os.defpath)])
    )
    if found is None:
        raise StoreError("the embedded store needs the program python3: put it on the PATH, or set DELAYQ_URL")
    return found
