"""A server whose first reply comes with half a push message; the rest of it comes before the second reply.

It sends only half of the reply about the key ``half``, and then nothing.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import hiredis


class _Handler(socketserver.BaseRequestHandler):
    """It answers MGET with its key, and other commands so that redis-py is content."""

    def handle(self) -> None:
        commands, rest = hiredis.Reader(), b""
        while data := self.request.recv(65536):
            commands.feed(data)
            while (words := commands.gets()) is not False:
                if words[:2] == [b"MGET", b"half"]:
                    self.request.sendall(b"*1\r\n$4\r\nha")
                elif words[0] == b"MGET":
                    reply, half = rest + b"*1\r\n$1\r\n%b\r\n" % words[1], b">2\r\n$10\r\ninvalidate\r\n"
                    self.request.sendall(reply if rest else reply + half)
                    rest = b"" if rest else b"*1\r\n$3\r\nkey\r\n"
                else:
                    self.request.sendall(b"%1\r\n+proto\r\n:3\r\n" if words[0] == b"HELLO" else b"+OK\r\n")


@contextmanager
def half_pushes(path: Path) -> Iterator[None]:
    """Run the server at a unix socket."""
    with socketserver.ThreadingUnixStreamServer(str(path), _Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
