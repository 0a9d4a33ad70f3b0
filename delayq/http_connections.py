"""Limits of an HTTP server, so that strangers cannot stop it: how many connections it has, and how long each may wait.

The dashboard's server and that of metrics share these limits. A connection waits while it is its client's turn to send
or to read. When the server is full, it closes the connection that has waited longest, so a new client gets an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import ipaddress
import re
import resource
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from delayq.log import log

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")

PROGRESS_BYTES = 64 * 1024
"""A client that sends or reads this much of a body or an answer gets its full time again."""

READ_BYTES = 8 * 1024
"""Read from a connection at a time, so that none fills the memory or keeps the server busy for long."""

MOST_HELD_BYTES = 16 * 1024 * 1024
"""The limit for all bodies that are still arriving, and all answers that clients have not read yet, together."""

LOOK_SECONDS = 1.0
"""Seconds between two looks for connections that have waited too long."""

ACCEPTED_AT_ONCE = 16
"""Connections accepted in one turn of the event loop: the excess is closed a few turns later."""

BACKLOG = 1024
"""Connections that the kernel holds until they are accepted. It drops more, and their clients retry after a second."""

LOG_SECONDS = 60.0
"""Seconds between two log lines about connections that could not be accepted."""


class Turn(enum.Enum):
    """Whose turn it is on a connection, and to do what."""

    SERVER = enum.auto()
    QUEUED = enum.auto()  # the server's, but it has not begun
    REQUEST = enum.auto()
    NEXT_REQUEST = enum.auto()
    BODY = enum.auto()
    REST = enum.auto()  # of a body whose request has been answered: a client may read the answer only after sending it
    READER = enum.auto()


SECONDS = {Turn.REQUEST: 10.0, Turn.NEXT_REQUEST: 5.0, Turn.BODY: 20.0, Turn.REST: 5.0, Turn.READER: 20.0}
"""How long a client's turn may last. The time for a request starts with the connection, or with its first byte."""


class LimitedConnection(asyncio.BufferedProtocol):
    """A connection of a `ConnectionLimiter`, as a protocol of asyncio; `take` takes what arrives.

    Attributes:
        turn: whose turn it was at the last look.
        since: when that turn began, on the event loop's clock.
        size: the bytes received in that turn, or still to be read in it.
        mark: what the size was when the turn began, or the client got its time again.
        held: the bytes of a body or an answer that are in memory because the client is not finished.
    """

    transport: asyncio.Transport

    def __init__(self, limiter: ConnectionLimiter, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limiter = limiter
        self.address = ""
        self.turn, self.since = Turn.REQUEST, 0.0
        self.size = self.mark = self.held = 0

    def whose_turn(self) -> Turn:
        """Return whose turn it is now."""
        raise NotImplementedError

    @property
    def is_of_user(self) -> bool:
        """Whether the latest request was of somebody who had logged in."""
        return False

    def take(self, data: bytes) -> None:
        """Take what has arrived."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count this connection; close one if there are too many."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        # Without it, an answer of several packets waits 40 ms for the client to confirm the first one.
        with contextlib.suppress(OSError):  # on macOS, if the client is gone already
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.address = place_of((transport.get_extra_info("peername") or ("",))[0])
        self.since = self.limiter.now()
        super().connection_made(transport)
        self.limiter.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting this connection."""
        self.limiter.leave(self)
        super().connection_lost(exc)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  # asyncio's signature
        """Return where the next bytes go; all connections share it, because each takes its bytes at once."""
        return self.limiter.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what has arrived."""
        self.size += nbytes
        self.take(bytes(self.limiter.buffer[:nbytes]))
        self.look()

    def resume_writing(self) -> None:
        """Give a client that reads more time."""
        self.since, self.mark = self.limiter.now(), self.unread
        super().resume_writing()

    def look(self) -> None:
        """Find out whose turn it is, and count what the client has left in the memory."""
        self.note_progress()
        self.limiter.hold(self, self.unread + (self.size if self.turn is Turn.BODY else 0))

    def note_progress(self) -> None:
        """Find out whose turn it is, and since when."""
        before, self.turn = self.turn, self.whose_turn()
        if self.turn is not before:
            self.size = 0
        if self.turn is Turn.READER:
            self.size = self.unread
        moved = {Turn.BODY: self.size - self.mark, Turn.READER: self.mark - self.size}.get(self.turn, 0)
        if self.turn is not before or moved >= PROGRESS_BYTES:
            self.since, self.mark = self.limiter.now(), self.size

    @property
    def unread(self) -> int:
        """The bytes of answers that the client has not read, beyond what the kernel holds."""
        return self.transport.get_write_buffer_size()

    def is_overdue(self) -> bool:
        """Whether the client has used up the time of its turn."""
        return self.limiter.now() - self.since > SECONDS.get(self.turn, float("inf"))


class ConnectionLimiter:
    """The connections of a server. It closes those that wait too long, and if there are too many, the longest waiting.

    Args:
        most: connections at a time; at most half of the files that this process may open.
        shared: whether one address, such as a proxy's, may have all of them; otherwise it may have half.
    """

    def __init__(self, most: int, *, shared: bool = False) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.most = most if files == resource.RLIM_INFINITY else min(most, files // 2)
        self.most_of_address = self.most if shared else self.most // 2
        self.buffer = memoryview(bytearray(READ_BYTES))
        self._open: set[LimitedConnection] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._held = 0
        self._is_closed = False
        self._failed, self._logged = 0, float("-inf")

    def now(self) -> float:
        """Return the event loop's time."""
        return asyncio.get_running_loop().time()

    def enter(self, connection: LimitedConnection) -> None:
        """Count a connection; close one if there are too many."""
        self._open.add(connection)
        if self._is_closed:
            self._close(connection)
            return
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        of_address = [each for each in self._open if each.address == connection.address]
        if len(of_address) > self.most_of_address:
            self._close_longest(of_address)
        elif len(self._open) > self.most:
            self._close_longest(self._open)

    def leave(self, connection: LimitedConnection) -> None:
        """Stop counting a connection."""
        self._open.discard(connection)
        self._count(connection, 0)

    def hold(self, connection: LimitedConnection, size: int) -> None:
        """Count the bytes that a connection holds; close one if there are too many."""
        if connection not in self._open:
            return
        self._count(connection, size)
        if self._held > MOST_HELD_BYTES:
            self._close_longest(each for each in self._open if each.held)

    def close(self) -> None:
        """Close all connections at once, and each that is still to come."""
        self._is_closed = True
        for each in list(self._open):
            self._close(each)
        if self._timer is not None:
            self._timer.cancel()

    def on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: log at times that connections cannot be accepted, and others as usual."""
        if not str(context.get("message")).startswith("socket.accept()"):
            loop.default_exception_handler(context)
            return
        self._failed += 1
        if loop.time() - self._logged >= LOG_SECONDS:
            log.warning("connections not accepted", error=str(context.get("exception")), failures=self._failed)
            self._failed, self._logged = 0, loop.time()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look) if self._open else None
        for each in list(self._open):
            each.look()
            if each.is_overdue():
                self._close(each)

    def _count(self, connection: LimitedConnection, size: int) -> None:
        self._held += size - connection.held
        connection.held = size

    def _close_longest(self, among: Iterable[LimitedConnection]) -> None:
        """Close the connection that has waited longest, of strangers if there is one.

        Those that wait in a queue are no exception, or slow pages would keep probes out. The new connection is among
        them, and waits for its request.
        """
        waiting = [each for each in among if each.turn is not Turn.SERVER]
        for each in waiting:
            if each.turn is Turn.READER:
                each.note_progress()
        self._close(min(waiting, key=lambda each: (each.is_of_user, each.since)))

    def _close(self, connection: LimitedConnection) -> None:
        self.leave(connection)
        connection.transport.abort()


_WITH_PORT = re.compile(r"\[([^]]*)\](?::[0-9]+)?|([^:]*):[0-9]+")


def place_of(address: str) -> str:
    """Return what counts as one address: for IPv6 the /64 network, since one client has all its addresses.

    Some proxies add the port, which is another one for each connection. It does not count.
    """
    match = _WITH_PORT.fullmatch(address)
    host = (match[1] or match[2]) if match else address
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    return str(found.ipv4_mapped or ipaddress.ip_network((found, 64), strict=False))


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a name or an address, which may be in brackets."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def host_names(host: str, more: Sequence[str], address: str = "") -> list[str]:
    """Return the host names that a server answers to, as in the header Host but without ports; any if empty.

    In a browser, any web site can reach a server on a loopback address through a host name of its own. So such a server
    answers only to the names of this address.

    Args:
        host: the name or the address to listen on.
        more: other names to answer to.
        address: the address that the host has.
    """
    own = (*LOOPBACK, host) if is_loopback(host) or is_loopback(address) else ()
    return [*own, *more]
