"""A proxy in front of a Redis server that reads each command, and can cut the connection at any of them."""

from __future__ import annotations

import contextlib
import selectors
import shutil
import socket
import threading
from collections import deque
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import hiredis

from delayq.protocol.script import script
from tests.harness.servers import short_directory
from tests.harness.tree import lua_scripts, topic_scripts

Way: TypeAlias = Literal[
    "before",  # the command does not reach the server
    "after",  # it runs; its reply is lost, and so are the commands that the client sent behind it
    "within",  # the same, but half of its reply arrives
    "deaf",  # it runs, and so do the commands sent behind it; all replies are lost
]
WAYS: tuple[Way, ...] = ("before", "after", "within", "deaf")
BLOCKING = {"BLPOP"}  # done as soon as it waits: its reply may never come
WITH_SUBCOMMAND = {"CLIENT", "CONFIG"}
STUCK_SECONDS = 10.0


class Cut(NamedTuple):
    """How to cut, and whether to cut only this connection or all of them until `Proxy.mend`."""

    way: Way
    for_good: bool = False


Decide: TypeAlias = Callable[[str], Cut | None]
"""Is asked for every command, by its name, before it is passed on."""


class Proxy:
    """Passes commands to a server, one at a time on each connection, and returns the replies.

    Args:
        server: the path of its Unix socket.
        decide: see `Decide`; can be changed at any time.
        port: listen on a free port of 127.0.0.1, not on a Unix socket.

    Attributes:
        url: what clients connect to.
        port: the same port; 0 for a Unix socket.
        passed: the names of the commands so far, including those cut with "before"; can be cleared.
        cuts: how many connections `decide` has cut.
    """

    def __init__(self, server: Path, decide: Decide = lambda _: None, *, port: bool = False) -> None:
        self.decide = decide
        self.passed: list[str] = []
        self.cuts = 0
        self._server = server
        self._folder = short_directory()
        self._listener = socket.socket(socket.AF_INET if port else socket.AF_UNIX)
        self._listener.bind(("127.0.0.1", 0) if port else str(self._folder / "p"))
        self._listener.listen(128)
        self.port = self._listener.getsockname()[1] if port else 0
        self.url = f"redis://127.0.0.1:{self.port}" if port else f"unix://{self._folder / 'p'}"
        self._links: dict[socket.socket, _Link] = {}
        self._down = False
        self._lock = threading.Lock()
        self._stop, self._stopped = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        for end in (self._listener, self._stopped):
            self._selector.register(end, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self) -> None:
        """Close all connections, and each new one, until `mend`."""
        with self._lock:
            self._go_down()

    def mend(self) -> None:
        """Let clients connect again."""
        with self._lock:
            self._down = False

    def close(self) -> None:
        """End."""
        self._stop.close()
        self._thread.join()
        for link in set(self._links.values()):
            self.drop(link)
        for end in (self._listener, self._stopped):
            end.close()
        self._selector.close()
        shutil.rmtree(self._folder)

    # -- what the links call -------------------------------------------------------------------------------------------

    def sentence(self, name: str) -> Cut | None:
        """Return what to do with a command."""
        self.passed.append(name)
        return self.decide(name)

    def execute(self, cut: Cut, link: _Link) -> None:
        """Cut a connection."""
        self.cuts += 1
        if cut.for_good:
            self._go_down()
        self.drop(link)

    def drop(self, link: _Link) -> None:
        """Close both ends of a connection; calling it again does nothing."""
        for end in (link.client, link.server):
            if self._links.pop(end, None) is not None:
                self._selector.unregister(end)
                end.close()

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                end: Any = key.fileobj
                if end is self._stopped:
                    return
                with self._lock:
                    if end is self._listener:
                        self._accept()
                    elif end in self._links:  # otherwise it was closed a moment ago
                        self._serve(self._links[end], end)

    def _accept(self) -> None:
        client, server = self._listener.accept()[0], socket.socket(socket.AF_UNIX)
        if self.port:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if self._down:
                raise ConnectionRefusedError
            server.connect(str(self._server))
        except OSError:
            client.close()
            server.close()
            return
        link = _Link(self, client, server)
        for end in (client, server):
            end.settimeout(STUCK_SECONDS)
            self._links[end] = link
            self._selector.register(end, selectors.EVENT_READ)

    def _serve(self, link: _Link, end: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = end.recv(1 << 16)
        try:
            if not data:
                self.drop(link)
            elif end is link.client:
                link.ask(data)
            else:
                link.answer(data)
        except OSError:  # the other end is closed
            self.drop(link)

    def _go_down(self) -> None:
        self._down = True
        for link in set(self._links.values()):
            self.drop(link)


class _Link:
    """A client's connection and its connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self._proxy = proxy
        self._asked = hiredis.Reader()
        self._replies = hiredis.Reader()
        self._commands: deque[list[bytes]] = deque()  # waiting for the reply to the one before
        self._runs = False
        self._cut: Cut | None = None
        self._reply = b""

    def ask(self, data: bytes) -> None:
        """Read what the client sent."""
        self._asked.feed(data)
        while (command := self._asked.gets()) is not False:
            self._commands.append(command)
        if not self._runs:
            self._next()

    def answer(self, data: bytes) -> None:
        """Read what the server sent: the reply to the single command that it has."""
        self._reply += data
        self._replies.feed(data)
        if self._replies.gets() is False:
            return
        reply, self._reply, self._runs = self._reply, b"", False
        if self._cut is None:
            self.client.sendall(reply)
        elif self._cut.way == "within":
            self.client.sendall(reply[: len(reply) // 2])
        if self._cut is None or (self._cut.way == "deaf" and self._commands):
            self._next()
        else:
            self._proxy.execute(self._cut, self)

    def _next(self) -> None:
        if not self._commands:
            return
        command = self._commands.popleft()
        name = name_of(command)
        if self._cut is None:
            self._cut = self._proxy.sentence(name)
            if self._cut is not None and self._cut.way == "before":
                self._proxy.execute(self._cut, self)
                return
        words: Any = tuple(command)
        self.server.sendall(hiredis.pack_command(words))
        self._runs = True
        if self._cut is not None and self._cut.way == "after" and name in BLOCKING:
            self._proxy.execute(self._cut, self)


def name_of(command: list[bytes]) -> str:
    """Return the name of a command: a script's name, or its first word or two."""
    first = command[0].decode().upper()
    if first in {"EVALSHA", "EVAL"}:
        return _scripts().get(command[1].decode(), first)
    return f"{first} {command[1].decode().upper()}" if first in WITH_SUBCOMMAND else first


@cache
def _scripts() -> dict[str, str]:
    """The names of the scripts, by digest and by text."""
    found: dict[str, str] = {}
    for name in [*(path.stem for path in lua_scripts()), *(f"topics/{path.stem}" for path in topic_scripts())]:
        known = script(name)
        found |= {known.sha: known.name, known.text: known.name}
    return found
