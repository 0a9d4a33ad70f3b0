"""A browser that follows what is live, without being one; and waiting within an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from tests.harness.waiting import eventually

PATIENCE = 60.0

_sleep = asyncio.sleep  # also where a test has put another one in its place


async def holds(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds that other tasks bring about."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # nobody tells
            await _sleep(0.002)


class Follower:
    """A browser that asks for what is live and, until it leaves, reads what comes."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.text = ""
        self._socket = socket.create_connection((str(parts.hostname), int(parts.port or 0)))
        self._socket.sendall(f"GET {parts.path}?{parts.query} HTTP/1.1\r\nHost: {parts.netloc}\r\n\r\n".encode())
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the server has closed it already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def has_seen(self, text: str) -> bool:
        return eventually(lambda: text in self.text)

    def _read(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # the server was still sending when this left
            while part := self._socket.recv(65536):
                self.text += part.decode()
