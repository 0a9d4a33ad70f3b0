"""A slow link to a Redis server: a fixed number of bytes per second each way, shared by all connections."""

from __future__ import annotations

import contextlib
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Self

from tests.harness.servers import short_directory

CHUNK = 16 * 1024
BUFFERED = 0.05  # seconds of data sent ahead, to make up for sleeps that take too long


class Throttle:
    """Passes bytes between clients and a server.

    Args:
        server: the path of its Unix socket.
        rate: bytes a second, each way.

    Attributes:
        url: what clients connect to.
        down: bytes that the server has sent so far.
    """

    def __init__(self, server: Path, rate: float) -> None:
        self._server = server
        self._rate = rate
        self._folder = short_directory()
        self.url = f"unix://{self._folder / 't'}"
        self.down = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / "t"))
        self._listener.listen(128)
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self._listener, *self._ends):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join()
        shutil.rmtree(self._folder)

    def _start(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        up, down = _Meter(self._rate), _Meter(self._rate)
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(str(self._server))
                self._ends += [client, server]
                self._start(self._pump, client, server, up)
                self._start(self._pump, server, client, down)

    def _pump(self, source: socket.socket, target: socket.socket, meter: _Meter) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                meter.wait(len(data))
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class _Meter:
    """Lets bytes pass at a fixed rate."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free = 0.0
        self._lock = threading.Lock()

    def wait(self, count: int) -> None:
        with self._lock:
            self._free = max(self._free, time.monotonic() - BUFFERED) + count / self._rate
            until = self._free
        time.sleep(max(0.0, until - time.monotonic()))
