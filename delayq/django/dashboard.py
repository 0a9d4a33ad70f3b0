"""The dashboard among the URLs of a Django site, behind its login.

It runs on an event loop of its own, which the threads or the event loop of the web server wait for: so it works with
ASGI and with WSGI. A worker of a WSGI server would be taken by each live page for as long as that is open: so there the
stream of a page is refused, and the page asks every few seconds instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Literal

from asgiref.sync import sync_to_async
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import resolve_url
from django.urls import NoReverseMatch, re_path
from django.utils.crypto import salted_hmac
from django.views.decorators.csrf import csrf_exempt

from delayq.django.framework import task_backends
from delayq.django.options import Options

if TYPE_CHECKING:
    from delayq.web import Dashboard

Role = Literal["operator", "viewer"]
USER = "delayq.django.user"  # the key in a scope
BUFFERED = 8  # parts of an answer that the dashboard may be ahead of a slow browser
POLL_SECONDS = 3600  # then the page asks for the stream again


def staff(user: Any) -> Role | None:
    """Return the role of a user of the site: staff may act."""
    return "operator" if user.is_active and user.is_staff else None


def dashboard_urls(
    backend: str = "default", *, role: Callable[[Any], Role | None] = staff, **options: Any
) -> tuple[list[Any], str, str]:
    """Return the dashboard, for ``urlpatterns``: in ``path("queues/", …)``.

    Args:
        backend: the alias of the backend whose server it shows.
        role: returns the role of a user of the site, or None to refuse access; by default, all staff may act.
        options: further options of `delayq.web.app`, such as `read_only` or `redact`.
    """
    served = _Served(backend, options)

    @csrf_exempt  # its forms have tokens of their own
    async def view(request: HttpRequest, path: str) -> HttpResponseBase:
        user = await request.auser()
        allowed = await sync_to_async(role)(user)
        if allowed is None:
            return _refused(request, user, path)
        dashboard, loop = served.here()
        exchange = Exchange(dashboard, _scope(request, path, user, allowed), request.body, loop)
        try:
            return await _answer(exchange, request)
        except BaseException:  # such as that the browser has left
            exchange.close()
            raise

    return [re_path(r"^(?P<path>.*)$", view, name="dashboard")], "delayq", "delayq"


class _Served:
    """The dashboard and its event loop; each process has its own, also one that was forked."""

    def __init__(self, backend: str, options: dict[str, Any]) -> None:
        self._backend = backend
        self._options = options
        self._locks: dict[int, threading.Lock] = {}  # by process: a thread of the parent may hold its lock at a fork
        self._made: dict[int, tuple[Dashboard, asyncio.AbstractEventLoop]] = {}

    def here(self) -> tuple[Dashboard, asyncio.AbstractEventLoop]:
        """Return those of this process."""
        process = os.getpid()
        if process not in self._made:
            with self._locks.setdefault(process, threading.Lock()):
                if process not in self._made:
                    self._made = {process: self._make()}
        return self._made[process]

    def _make(self) -> tuple[Dashboard, asyncio.AbstractEventLoop]:
        from delayq.web import app  # noqa: PLC0415  # with the extra "dashboard"

        of = Options.of(task_backends[self._backend].options)
        secret = salted_hmac("delayq.django.dashboard", self._backend, algorithm="sha256").hexdigest()
        options = {"secret": secret, "prefix": of.prefix, "login": lambda request: request.scope[USER], **self._options}
        made = app(of.url, **options)
        loop = asyncio.new_event_loop()
        threading.Thread(target=loop.run_forever, name="delayq-dashboard", daemon=True).start()
        return made, loop


def _refused(request: HttpRequest, user: Any, path: str) -> HttpResponseBase:
    if user.is_authenticated:
        raise PermissionDenied
    if request.method != "GET" or path.startswith("api/") or "x-requested-with" in request.headers:
        return HttpResponse("Log in first.\n", status=401, content_type="text/plain")
    from django.contrib.auth.views import redirect_to_login  # noqa: PLC0415  # with models, which come after the apps

    try:
        login = resolve_url("admin:login")
    except NoReverseMatch:
        login = resolve_url(settings.LOGIN_URL)
    return redirect_to_login(request.get_full_path(), login)


def _scope(request: HttpRequest, path: str, user: Any, role: Role) -> dict[str, Any]:
    """Return the ASGI scope of a request, below the path where the dashboard is."""
    from delayq.web import User  # noqa: PLC0415

    meta, around = request.META, getattr(request, "scope", {})
    port = str(meta.get("SERVER_PORT", ""))
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    raw = around.get("raw_path") or str(meta.get("REQUEST_URI") or meta.get("RAW_URI") or "").encode("latin-1")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "root_path": request.path.removesuffix(path).removesuffix("/"),
        "query_string": meta.get("QUERY_STRING", "").encode("latin-1"),
        "headers": headers,
        "client": (meta.get("REMOTE_ADDR", ""), 0),
        "server": (meta.get("SERVER_NAME", ""), int(port) if port.isdecimal() else None),  # None on a Unix socket
        USER: User(user.get_username(), role),
        **({"raw_path": raw} if raw.startswith(b"/") else {}),
    }


class Exchange:
    """A request to an ASGI application that runs on another event loop, and its answer.

    Args:
        app: the application.
        scope: of the request.
        body: of the request.
        loop: the event loop, which another thread runs.
    """

    def __init__(self, app: Any, scope: dict[str, Any], body: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._app = app
        self._scope = scope
        self._loop = loop
        self._request: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]
        self._answer: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(BUFFERED)
        self._running = asyncio.run_coroutine_threadsafe(self._run(), loop)

    async def _run(self) -> None:
        with contextlib.suppress(Exception):  # it has answered with an error page, and logged it
            await self._app(self._scope, self._receive, self._answer.put)
        await self._answer.put(None)

    async def _receive(self) -> dict[str, Any]:
        if self._request:
            return self._request.pop()
        return await asyncio.Future()  # the browser stays until `close`

    def next(self) -> Future[dict[str, Any] | None]:
        """Return the next event of the answer, in time; None after the last one."""
        return asyncio.run_coroutine_threadsafe(self._answer.get(), self._loop)

    def close(self) -> None:
        """End the request: the browser has left."""
        self._running.cancel()


async def _answer(exchange: Exchange, request: HttpRequest) -> HttpResponseBase:
    start = await asyncio.wrap_future(exchange.next())
    if start is None:
        return HttpResponse("The dashboard has failed.\n", status=500, content_type="text/plain")
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
    is_async = hasattr(request, "scope")
    if not is_async and dict(headers).get("content-type", "").startswith("text/event-stream"):
        exchange.close()
        return _no_stream()
    first = await asyncio.wrap_future(exchange.next()) or {}
    body = first.get("body", b"")
    answer: HttpResponseBase
    if not first.get("more_body"):
        answer = HttpResponse(body, status=start["status"])
    else:
        answer = _Streaming(exchange, _parts_async if is_async else _parts, body, start["status"])
    del answer["content-type"]
    for name, value in headers:
        if name == "set-cookie":
            answer.cookies.load(value)
        else:
            answer[name] = f"{answer[name]}, {value}" if answer.has_header(name) else value
    return answer


def _no_stream() -> HttpResponse:
    text = "This site runs with WSGI, where pages ask for changes instead of streaming them.\n"
    return HttpResponse(text, status=503, content_type="text/plain", headers={"retry-after": str(POLL_SECONDS)})


class _Streaming(StreamingHttpResponse):
    """An answer in parts. Django closes it also if the browser leaves before the first one."""

    def __init__(self, exchange: Exchange, parts: Callable[[Exchange, bytes], Any], first: bytes, status: int) -> None:
        super().__init__(parts(exchange, first), status=status)
        self._exchange = exchange

    def close(self) -> None:
        self._exchange.close()
        super().close()


async def _parts_async(exchange: Exchange, first: bytes) -> AsyncIterator[bytes]:
    yield first
    while (event := await asyncio.wrap_future(exchange.next())) is not None:
        yield event.get("body", b"")


def _parts(exchange: Exchange, first: bytes) -> Iterator[bytes]:
    yield first
    while (event := exchange.next().result()) is not None:
        yield event.get("body", b"")
