"""The HTTP server of metrics and probes."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

from delayq.errors import InvalidInput
from delayq.http_connections import (
    ACCEPTED_AT_ONCE,
    BACKLOG,
    ConnectionLimiter,
    LimitedConnection,
    Turn,
    host_names,
)
from delayq.log import log

CONNECTIONS = 64
"""At a time: a few scrapers and probes, each with one request."""

HEAD_BYTES = 16 * 1024
"""The request line and the headers."""

HEADERS = 100

THREADS = 4
"""For each path, so that scrapes that wait for a server do not delay probes."""

PLAIN = "text/plain; charset=utf-8"
_HEAD_END = re.compile(rb"\r?\n\r?\n")
_FIRST_LINE = re.compile(r"(?P<method>[A-Z]{1,20}) (?P<path>[!-~]+) HTTP/1\.(?P<version>[0-9])")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Response(NamedTuple):
    """The response to a request."""

    status: int
    body: bytes
    content_type: str = PLAIN


Route = Callable[[str], Response]
"""Called with the Accept header of a request."""


class Request(NamedTuple):
    """The head of a request; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]


class MetricsServer:
    """Answers GET requests on a separate thread until the block ends.

    Args:
        host: an address of this machine; "" for all addresses.
        port: 0 to 65535; 0 for any free one.
        routes: from paths to functions that answer.
        hosts: on a loopback address, other host names to answer to; on other addresses, the only ones, or any if empty.

    Attributes:
        host, port: where it listens.

    Raises:
        InvalidInput: it cannot listen there.
    """

    def __init__(self, host: str, port: int, routes: Mapping[str, Route], hosts: Sequence[str] = ()) -> None:
        try:
            self._listening = _listening(host, port)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInput(
                f"cannot listen on {host or '*'} port {port}: {why}: give another port or host"
            ) from error
        self.host, self.port = self._listening.getsockname()[:2]
        self._answers = _Answers(routes, host_names(host, hosts, self.host))
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name="delayq-metrics-http", daemon=True)
        self._stopping = asyncio.Event()

    def __enter__(self) -> Self:
        self._thread.start()
        shown = f"[{self.host}]" if ":" in self.host else self.host
        log.info("metrics served", url=f"http://{shown}:{self.port}/metrics")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        limiter = ConnectionLimiter(CONNECTIONS)
        self._loop.set_exception_handler(limiter.on_error)
        server = await self._loop.create_server(
            lambda: _Connection(limiter, self._answers), sock=self._listening, backlog=ACCEPTED_AT_ONCE
        )
        async with server:
            self._listening.listen(BACKLOG)
            await self._stopping.wait()
            limiter.close()


def _listening(host: str, port: int) -> socket.socket:
    """Return a socket of the address family of the host. It shares its port with no other program."""
    found: Any = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


class _Answers:
    """Asks the routes, on a few threads for each.

    Args:
        hosts: the host names to answer to; any if empty.
    """

    def __init__(self, routes: Mapping[str, Route], hosts: Sequence[str]) -> None:
        self._routes = routes
        self._hosts = {each.strip("[]").lower() for each in hosts}
        self._threads = {path: asyncio.Semaphore(THREADS) for path in routes}

    def refusal(self, request: Request) -> Response | None:
        """Return an answer for which no route is asked."""
        if self._hosts and "host" in request.headers and _host_name(request.headers["host"]) not in self._hosts:
            return _refused(421, "this host name is unknown: use the address")
        if request.method not in {"GET", "HEAD"}:
            return _refused(405, "use GET")
        if "transfer-encoding" in request.headers or request.headers.get("content-length", "0") != "0":
            return _refused(413, "send no body")
        return None if request.path in self._routes else _refused(404, f"not found; try {', '.join(self._routes)}")

    def thread(self, path: str) -> asyncio.Semaphore:
        """Return what to hold while a route is asked."""
        return self._threads[path]

    async def ask(self, request: Request) -> Response:
        """Ask a route, on a thread that does not keep the process alive."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Response] = loop.create_future()

        def take(answer: Response) -> None:
            if not answered.done():  # as when the server stops
                answered.set_result(answer)

        def ask() -> None:
            answer = self._asked(request)
            with contextlib.suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(take, answer)

        try:
            threading.Thread(target=ask, name="delayq-metrics-route", daemon=True).start()
        except RuntimeError:
            return _refused(503, "the system allows no further thread: try again later")
        return await answered

    def _asked(self, request: Request) -> Response:
        try:
            return self._routes[request.path](request.headers.get("accept", ""))
        except BaseException:  # noqa: BLE001  # such as one of the program's own collectors, which may also exit
            log.error("request failed", path=request.path, exc_info=True)
            return _refused(500, "internal error: see the log")


class _Connection(LimitedConnection):
    """A connection, which ends after one request."""

    def __init__(self, limiter: ConnectionLimiter, answers: _Answers) -> None:
        super().__init__(limiter)
        self._answers = answers
        self._head = b""
        self._turn = Turn.REQUEST
        self._task: asyncio.Task[None] | None = None

    def whose_turn(self) -> Turn:
        return Turn.READER if self.unread else self._turn

    def take(self, data: bytes) -> None:
        if self._turn is not Turn.REQUEST:
            return
        self._head += data
        if end := _HEAD_END.search(self._head):
            self._turn = Turn.QUEUED
            self._task = asyncio.get_running_loop().create_task(self._answer(self._head[: end.start()]))
        elif len(self._head) > HEAD_BYTES:
            self._send(_refused(431, f"the headers are longer than {HEAD_BYTES:,} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._task is not None and self._turn is Turn.QUEUED:
            self._task.cancel()

    async def _answer(self, head: bytes) -> None:
        request = parsed(head)
        if isinstance(request, Response):
            self._send(request)
            return
        answer = self._answers.refusal(request)
        if answer is None:
            async with self._answers.thread(request.path):
                self._turn = Turn.SERVER
                answer = await self._answers.ask(request)
        self._send(answer, has_body=request.method != "HEAD")

    def _send(self, answer: Response, *, has_body: bool = True) -> None:
        self._turn = Turn.SERVER
        head = (
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
            f"Date: {formatdate(usegmt=True)}",
            f"Content-Type: {answer.content_type}",
            f"Content-Length: {len(answer.body)}",
            "Cache-Control: no-store",
            "Connection: close",
        )
        self.transport.write("\r\n".join([*head, "", ""]).encode() + (answer.body if has_body else b""))
        self.transport.close()
        self.look()


def parsed(head: bytes) -> Request | Response:
    """Read the head of a request, without the empty line at its end; return the answer if it is invalid."""
    first, *lines = re.split(r"\r?\n", head.lstrip(b"\r\n").decode("latin-1"))
    if not (found := _FIRST_LINE.fullmatch(first)):
        return _refused(400, "this is not an HTTP request")
    if len(lines) > HEADERS:
        return _refused(431, f"there are more than {HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _TOKEN.fullmatch(name)) or (name := name.lower()) in headers.keys() & {"host"}:
            return _refused(400, "a header is invalid")
        headers[name] = value.strip(" \t")
    if found["version"] != "0" and "host" not in headers:
        return _refused(400, "the header Host is missing")
    return Request(found["method"], found["path"].partition("?")[0], headers)


def _refused(status: int, why: str) -> Response:
    return Response(status, f"{why}\n".encode())


def _host_name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
