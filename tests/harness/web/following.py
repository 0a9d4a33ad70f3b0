"""A client that follows live updates as a browser does, and a wait for use in an event loop."""

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

_sleep = asyncio.sleep  # the real one, even if a test replaces it


async def holds(condition: Callable[[], bool]) -> None:
    """Wait until other tasks make a condition true."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # nothing signals it
            await _sleep(0.002)


class Follower:
    """Like a browser, requests live updates and reads them until it leaves.

    Args:
        cookie: of its session, if it needs one.
        address: the address it comes from.
    """

    def __init__(self, url: str, cookie: str = "", address: str = "") -> None:
        parts = urlsplit(url)
        self.text = ""
        self._socket = socket.create_connection((str(parts.hostname), int(parts.port or 0)), None, (address, 0))
        lines = [f"GET {parts.path}?{parts.query} HTTP/1.1", f"Host: {parts.netloc}", f"Cookie: {cookie}", "", ""]
        self._socket.sendall("\r\n".join(lines).encode())
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()
        self._socket.close()

    def leave(self) -> None:
        with contextlib.suppress(OSError):  # the server has closed it already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def has_seen(self, text: str) -> bool:
        return eventually(lambda: text in self.text)

    def _read(self) -> None:
        with contextlib.suppress(ConnectionResetError):  # the server was still sending when this left
            while part := self._socket.recv(65536):
                self.text += part.decode()
