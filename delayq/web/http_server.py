"""The HTTP server of `delayq dashboard`: uvicorn with the limits of `delayq.http_connections`."""

from __future__ import annotations

import asyncio
import functools
import logging
import re
import socket
from typing import Any

import h11
import uvicorn
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from delayq.http_connections import (
    ACCEPTED_AT_ONCE,
    BACKLOG,
    ConnectionLimiter,
    LimitedConnection,
    Turn,
)
from delayq.log import log

CONNECTIONS = 512
"""At a time: 200 browsers may watch, each through one connection, and pages take a few more."""

HEAD_BYTES = 16 * 1024
"""The request line and the headers."""

REST_BYTES = 64 * 1024
"""Of a body whose request has been answered; the server discards more, and the connection ends."""

TINY = 16
"""Bytes of a chunk, with its size and line ends. Bodies whose chunks have fewer are refused."""

STOP_SECONDS = 5

_LENGTHS = {b"content-length", b"transfer-encoding"}
_SMALL_CHUNK = re.compile(rb"\r\n0{0,8}[0-9A-Fa-f][ \t]{0,8}(?:;[^\r\n]{0,8})?\r\n")
"""The line with the size of a chunk, which may have an extension; the lines of a text look otherwise."""

_HEAD_END = re.compile(rb"\n\r?\n")


class Server(uvicorn.Server):
    """Serves an application to strangers until SIGTERM or SIGINT.

    Args:
        behind: the addresses of proxies, whose headers are trusted; the limit per address is then theirs to set.
        root_path: the path under which a proxy serves the application.
    """

    def __init__(self, app: ASGIApp, *, behind: str | None = None, root_path: str = "") -> None:
        self._limiter = ConnectionLimiter(CONNECTIONS, shared=behind is not None)
        connection: Any = functools.partial(DashboardConnection, self._limiter)
        super().__init__(
            uvicorn.Config(
                _quiet(app), http=connection, loop="asyncio", ws="none", backlog=ACCEPTED_AT_ONCE,
                h11_max_incomplete_event_size=HEAD_BYTES, log_config=None, access_log=False, server_header=False,
                root_path=root_path, proxy_headers=behind is not None, forwarded_allow_ips=behind,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )  # fmt: skip

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        for name in ("uvicorn.error", "asyncio"):
            logging.getLogger(name).addFilter(_is_worth_a_line)
        asyncio.get_running_loop().set_exception_handler(self._limiter.on_error)
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(BACKLOG)


class DashboardConnection(LimitedConnection, H11Protocol):  # type: ignore[misc]  # both close at the end of input
    """A connection of uvicorn, with limits."""

    _last = b""  # the end of what has arrived of a head: the empty line after it may arrive in two parts

    def whose_turn(self) -> Turn:
        """Return whose turn it is now."""
        if self.unread:
            return Turn.READER
        if self.conn.their_state is h11.SEND_BODY:
            if self.cycle.response_complete:
                return Turn.REST
            return Turn.SERVER if self.flow.read_paused else Turn.BODY
        if self.conn.their_state is not h11.IDLE:
            return Turn.SERVER
        return Turn.REQUEST if self.cycle is None or self.conn.trailing_data[0] else Turn.NEXT_REQUEST

    @property
    def is_of_user(self) -> bool:
        """Whether the dashboard has found a user for the latest request."""
        return self.cycle is not None and bool(self.cycle.scope.get("state", {}).get("is_user"))

    def take(self, data: bytes) -> None:
        """Take what has arrived: first the head of a request alone, because it decides about the rest."""
        self.look()
        if self.turn in {Turn.REQUEST, Turn.NEXT_REQUEST}:
            end = _HEAD_END.search(self._last + data)
            size = end.end() - len(self._last) if end else len(data)
            self._last = b"" if end else (self._last + data)[-2:]
            self.data_received(data[:size])
            if self.cycle is not None and {name for name, _ in self.headers} >= _LENGTHS:
                self.cycle.keep_alive = False  # RFC 9112, 6.1: others may see the end of its body elsewhere
            self.look()
            data = data[size:]
            self.size += len(data)
        if data:
            self._take_after_head(data)

    def _take_after_head(self, data: bytes) -> None:
        if self.turn in {Turn.BODY, Turn.REST} and self._has_tiny_chunks(data):
            self.transport.abort()
        elif self.turn is Turn.BODY:
            self.data_received(data)
            if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
                self.cycle.keep_alive = False  # what follows is the next request
        elif self.turn is Turn.REST:
            if self.size <= REST_BYTES:
                self.data_received(data)
        elif self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # the next request, before the answer: no browser or proxy does that
            self.cycle.keep_alive = False

    def _has_tiny_chunks(self, data: bytes) -> bool:
        """Whether a body has chunks of a few bytes: each takes as long to read as a large one."""
        is_chunked = (b"transfer-encoding", b"chunked") in self.headers
        return is_chunked and len(data) > 64 and len(_SMALL_CHUNK.findall(data)) * TINY > len(data)

    def send_400_response(self, msg: str) -> None:
        """Say that a request is invalid; but not in the middle of the answer to it, or after that."""
        if self.conn.our_state is h11.IDLE:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_response_complete(self) -> None:
        """Take the next request."""
        super().on_response_complete()
        self.look()

    def shutdown(self) -> None:
        """Finish an answer, but wait for no request."""
        self.look()
        if self.turn in {Turn.SERVER, Turn.READER}:
            super().shutdown()
        else:
            self.transport.abort()


def _quiet(app: ASGIApp) -> ASGIApp:
    """Return the application without the errors that uvicorn would log again, or that are no errors of ours."""

    async def quiet(scope: Scope, receive: Receive, send: Send) -> None:
        is_answered = False

        async def sending(message: Message) -> None:
            nonlocal is_answered
            await send(message)
            is_answered = message["type"] == "http.response.body" and not message.get("more_body")

        try:
            await app(scope, receive, sending)
        except ClientDisconnect:
            log.debug("client disconnected", path=scope.get("path"))
        except Exception:
            if not is_answered:  # otherwise, the dashboard has logged it and shown an error page
                raise

    return quiet


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether a line is not a warning: uvicorn and asyncio write one each time that a client misbehaves."""
    return record.levelno != logging.WARNING or logging.getLogger().isEnabledFor(logging.DEBUG)
