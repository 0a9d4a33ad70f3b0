"""Server-sent events: changes go to the watching browsers, in one stream per page."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Callable, Sequence
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from delayq import signals
from delayq.http_connections import place_of
from delayq.web import error_pages
from delayq.web.live_part import LivePart
from delayq.web.request_context import client_address, visit

MOST = 200
"""Browsers that may watch at once."""

MOST_EACH = 20
"""Those of one user, or of one address if users have no names: otherwise one viewer could take all places."""

RETRY_SECONDS = 30
"""When a refused browser asks again; until then, it polls."""

SECONDS = 60.0
"""A stream ends after this time, and the browser opens a new one, so that logged-out users see no more."""

PATIENCE = 20.0
"""Seconds that a browser may take to accept data."""

TURN = 1.0
"""Seconds between two checks whether the server is stopping."""

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # otherwise nginx holds events back until it has some kilobytes
)


def stream(request: Request, *feeds: AsyncGenerator[LivePart, None]) -> Response | EventStream:
    """Return an answer that streams the parts of a page to the browser: first in full, then only changes.

    Args:
        feeds: each yields one part whenever it was looked at; the stream ends with the first feed that ends.
    """
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    return EventStream(feeds, request.app.state.streams, _viewer(request), partial(_refusal, request))


def _viewer(request: Request) -> str:
    """Return what counts as one viewer."""
    user = visit(request).user
    if user is not None and getattr(request.app.state.login, "asks_name", request.app.state.login is not None):
        return f"user {user.name}"
    return f"address {place_of(client_address(request))}"


def _refusal(request: Request, status: int, text: str) -> Response:
    return error_pages.page(request, status, text, {"retry-after": str(RETRY_SECONDS)})


class EventStream:
    """An answer that streams until the browser leaves, the server stops or a minute is over.

    Args:
        streams: holds it, with its viewer, while it is streaming.
        refusal: makes the answer if there is no place, from a status and a text.
    """

    def __init__(
        self,
        feeds: Sequence[AsyncGenerator[LivePart, None]],
        streams: dict[EventStream, str],
        viewer: str,
        refusal: Callable[[int, str], Response],
    ) -> None:
        self._feeds = feeds
        self._streams = streams
        self._viewer = viewer
        self._refusal = refusal
        self._sending = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if refused := self._refused():  # checked here: requests that came together have all been let in before
            await refused(scope, receive, send)
            return
        self._streams[self] = self._viewer
        try:
            await self._go_on(receive, send)
        finally:
            del self._streams[self]

    def _refused(self) -> Response | None:
        if sum(viewer == self._viewer for viewer in self._streams.values()) >= MOST_EACH:
            return self._refusal(429, f"{MOST_EACH} pages of yours are live already: close some, or reload this one.")
        if len(self._streams) >= MOST:
            return self._refusal(503, f"{MOST} browsers are watching already: close some, or reload later.")
        return None

    async def _go_on(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        tasks = [asyncio.create_task(self._tell(send, feed)) for feed in self._feeds]
        tasks += [asyncio.create_task(_left(receive)), asyncio.create_task(_ending())]
        try:
            await asyncio.wait(tasks, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(OSError):  # also a timeout: without the end, the server closes the connection
            async with asyncio.timeout(PATIENCE):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send, feed: AsyncGenerator[LivePart, None]) -> None:
        last = None
        async with contextlib.aclosing(feed) as parts:
            async for part in parts:
                if body := events(part, last):
                    async with asyncio.timeout(PATIENCE), self._sending:
                        await send({"type": "http.response.body", "body": body, "more_body": True})
                last = part


def events(part: LivePart, before: LivePart | None) -> bytes:
    """Return the changes of a part as events, one per element, and an event that says that it was seen."""
    changed = ["".join(f"data: {line}\n" for line in _lines(html)) for html in part.since(before)]
    seen = [f"event: seen\ndata: {part.id}\n"] if part.is_fresh else []
    return "".join(f"{each}\n" for each in changed + seen).encode()


def _lines(html: str) -> list[str]:
    r"""Split at the line ends of events, and nowhere else; for browsers, a bare ``\r`` is a line end too."""
    return html.replace("\r", "&#13;").split("\n")


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ending() -> None:
    """Wait until uvicorn is told to stop: it waits for open answers, but does not notify them."""
    while not getattr(signals.owner(signal.SIGTERM), "should_exit", False):  # noqa: ASYNC110  # uvicorn's, and no event
        await asyncio.sleep(TURN)
