"""The HTTP server of metrics and probes."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, NamedTuple, Self

from delayq.errors import InvalidInput
from delayq.log import log

REQUEST_SECONDS = 10.0  # limit for a client that sends slowly, or not at all
PLAIN = "text/plain; charset=utf-8"


class Response(NamedTuple):
    """The response to a request."""

    status: int
    body: bytes
    content_type: str = PLAIN


Route = Callable[[str], Response]
"""Called with the Accept header of a request."""


class MetricsServer:
    """Answers GET requests on a separate thread until the block ends.

    Args:
        host: an address of this machine; "" for all addresses.
        port: 0 to 65535; 0 for any free one.
        routes: from paths to functions that answer.

    Attributes:
        host, port: where it listens.

    Raises:
        InvalidInput: it cannot listen there.
    """

    def __init__(self, host: str, port: int, routes: Mapping[str, Route]) -> None:
        try:
            self._server = _listening(host, port, _handler(routes))
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInput(
                f"cannot listen on {host or '*'} port {port}: {why}: give another port or host"
            ) from error
        address: Any = self._server.server_address
        self.host: str = address[0]
        self.port: int = address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="delayq-metrics-http", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        shown = f"[{self.host}]" if ":" in self.host else self.host
        log.info("metrics served", url=f"http://{shown}:{self.port}/metrics")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ending = threading.Thread(target=self._server.shutdown)
        ending.start()
        with contextlib.suppress(OSError):  # it ends the wait of half a second, where the system supports it
            self._server.socket.shutdown(socket.SHUT_RDWR)
        ending.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # one that waits for a server must not keep the process alive
    block_on_close = False
    allow_reuse_port = False  # else two programs could share a port, and each would answer half of the scrapes

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # HTTPServer's looks up this machine's name
        self.server_name, self.server_port = "delayq", self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # of the base class
        log.debug("metrics request failed", exc_info=True)


def _listening(host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> _Server:
    """Return a server of the address family of the host."""
    flags = socket.AI_PASSIVE
    found: Any = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    family, _, _, _, address = found[0]

    class OfFamily(_Server):
        address_family = family

    return OfFamily(address[:2], handler)


def _handler(routes: Mapping[str, Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version = "delayq"
        sys_version = ""

        def do_GET(self) -> None:  # the name that the base class calls
            route = routes.get(self.path.partition("?")[0])
            answer = (
                Response(404, f"not found; try {', '.join(routes)}\n".encode()) if route is None else self._asked(route)
            )
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_HEAD = do_GET  # noqa: N815  # also the base class's name

        def _asked(self, route: Route) -> Response:
            try:
                return route(self.headers.get("Accept", ""))
            except Exception:  # noqa: BLE001  # such as one of the program's own collectors
                log.error("request failed", path=self.path, exc_info=True)
                return Response(500, b"internal error: see the log\n")

        def log_message(self, *_: Any) -> None:
            """Log nothing: a probe comes every few seconds."""

    return Handler
