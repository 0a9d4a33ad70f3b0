"""Strangers who try to stop an HTTP server, and the servers of delayq as processes with few files."""

from __future__ import annotations

import itertools
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.harness.waiting import eventually

TOKEN = "a token that is long enough"
COMMANDS = {
    "dashboard": ("dashboard", "--port", "0", "--token", TOKEN),
    "exporter": ("exporter", "--port", "0"),
    "consume": ("consume", "emails", "--exec", "true", "--metrics-port", "0"),
}

_GET = b"GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_UNWANTED = b"POST /nowhere%s HTTP/1.1\r\nHost: 127.0.0.1\r\n"
_POST = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/x-www-form-urlencoded\r\n"
WAITING = {
    "nothing": b"",
    "half a request": _GET,
    "a request, and half of the next": _GET + b"\r\n" + _GET,
    "an answered request": _GET + b"\r\n",
    "half a body": _POST + b"Content-Length: 3900000\r\n\r\n" + b"secret=" + b"x" * 3_000_000,
    "a body that is never read": _UNWANTED + b"Content-Length: 3900000\r\n\r\n" + b"x" * 200_000,
    "a body in chunks of a byte": _POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30_000,
    "requests whose answers are not read": (_GET + b"\r\n") * 200,
}
"""What a client sends before it waits; %s is a path."""

WRONG = {
    "garbage": b"\x00\xff\r\n\r\n" * 10,
    "a greeting of TLS": bytes.fromhex("16030100c8010000c40303") + b"\x01" * 200,
    "a huge header": _GET + b"X: " + b"x" * 200_000 + b"\r\n\r\n",
    "ten thousand headers": _GET + b"a: b\r\n" * 10_000 + b"\r\n",
    "a huge line": b"GET /" + b"x" * 200_000,
    "empty lines": b"\r\n" * 50_000,
    "a wrong chunk": _POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
    "a wrong chunk after the answer": _UNWANTED + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n\r\n",
    "a request to upgrade": _GET + b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    "an old version": b"GET %s HTTP/0.9\r\n\r\n",
    "two lengths": _POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
    "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}
"""What is not, or not quite, a request; %s is a path."""


class Served:
    """A process that serves HTTP on 127.0.0.1.

    Attributes:
        path: a page that strangers may see.
    """

    def __init__(self, process: subprocess.Popen[bytes], log: Path, path: str) -> None:
        self.process, self._log, self.path = process, log, path
        assert eventually(lambda: bool(self._ports()) or process.poll() is not None)
        assert self._ports(), self.log
        self.port = int(self._ports()[0])

    def _ports(self) -> list[str]:
        return re.findall(r"http://127\.0\.0\.1:(\d+)", self.log)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def memory(self) -> int:
        """Return the bytes that the process holds in memory; 0 on a system without /proc."""
        return self._status("VmRSS") * 1024

    def threads(self) -> int:
        """Return how many threads the process has; 0 on a system without /proc."""
        return self._status("Threads")

    def _status(self, name: str) -> int:
        with suppress(FileNotFoundError):
            status = Path(f"/proc/{self.process.pid}/status").read_text()
            return int(re.findall(rf"{name}:\s+(\d+)", status)[0])
        return 0

    def connect(self, sent: bytes = b"") -> socket.socket:
        """Return a connection on which a client has sent as much as the server takes."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(60)
        try:
            client.connect(("127.0.0.1", self.port))
        except OSError:
            client.close()
            raise
        client.setblocking(False)
        with suppress(OSError):
            data = sent.replace(b"%s", self.path.encode())
            while data:
                data = data[client.send(data) :]
        return client

    def status(self, seconds: float) -> int:
        """Return the status of a page; 0 if it does not arrive in this time."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds) as client:
            client.sendall(_GET.replace(b"%s", self.path.encode()) + b"Connection: close\r\n\r\n")
            with suppress(OSError):
                return int(client.makefile("rb").read().split()[1])
        return 0

    def stop(self) -> int:
        """Stop the process; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)


@contextmanager
def serving(name: str, url: str, folder: Path, files: int) -> Iterator[Served]:
    """Run a server until the block ends.

    Args:
        name: a key of `COMMANDS`.
        url: of the Redis server.
        files: how many the process may open, as ``ulimit -n`` says.
    """
    command = [sys.executable, "-m", "delayq.cli", *COMMANDS[name], "--url", url]
    limited = ["sh", "-c", f'ulimit -Sn {files} && exec "$@"', "sh", *command]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(limited, stderr=log, stdout=log, cwd=folder)
    try:
        yield Served(process, folder / "log", "/login" if name == "dashboard" else "/healthz")
    finally:
        process.kill()
        process.wait()


@contextmanager
def crowd(served: Served, kinds: list[bytes], size: int) -> Iterator[None]:
    """Hold many connections until the block ends. Each sends one of the kinds, in turn, and then a byte a second."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ended = threading.Event()
    with ExitStack() as stack:
        held: list[socket.socket] = []

        def dribble() -> None:
            while not ended.wait(1):
                for client in held:
                    with suppress(OSError):
                        client.send(b"x")

        thread = threading.Thread(target=dribble)
        thread.start()
        stack.callback(thread.join)
        stack.callback(ended.set)
        for kind in itertools.islice(itertools.cycle(kinds), size):
            held += [stack.enter_context(served.connect(kind))]
        yield


def reset(client: socket.socket) -> None:
    """End a connection as a program that is killed does, without a word."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()
