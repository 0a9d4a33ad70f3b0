"""A client that sends any request target, as no library does."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from http.client import HTTPResponse
from types import TracebackType
from typing import NamedTuple, Self
from urllib.parse import urlsplit


class Answer(NamedTuple):
    """An answer; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RawClient:
    """Sends requests to a server, over one connection as long as the server keeps it open.

    Args:
        address: as in ``http://127.0.0.1:8700``.

    Attributes:
        headers: sent with each request.
    """

    def __init__(self, address: str) -> None:
        self._host = urlsplit(address).netloc
        self._connection: socket.socket | None = None
        self.headers: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def ask(self, method: str, target: str, body: bytes = b"", **headers: str) -> Answer:
        """Send a request; the target is sent as it is."""
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in (self.headers | headers).items()]
        if self._connection is None:
            host, _, port = self._host.rpartition(":")
            self._connection = socket.create_connection((host, int(port)), timeout=60)
        self._connection.sendall("\r\n".join([*lines, "\r\n"]).encode("latin-1") + body)
        answer = HTTPResponse(self._connection, method=method)
        answer.begin()
        received = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        if answer.will_close:
            self._close()
        return received

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
