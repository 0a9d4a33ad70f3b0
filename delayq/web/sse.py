"""Server-sent events: what has changed goes to the browsers that watch, in one stream for a page."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from delayq.web import error_pages
from delayq.web.live_part import LivePart

MOST = 200
"""Browsers that may watch at once."""

SECONDS = 60.0
"""A stream ends after that, and the browser asks again: whoever was logged out meanwhile sees no more."""

PATIENCE = 20.0
"""Seconds that a browser may take to accept what was sent."""

TURN = 1.0
"""Between two looks at whether the server ends."""

_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),  # nginx would hold events back until it has some kilobytes of them
)


def stream(request: Request, *feeds: AsyncGenerator[LivePart, None]) -> Response | EventStream:
    """Return an answer that sends the parts of a page to the browser: first as they are, then what has changed of them.

    Args:
        feeds: each yields one part, every time it was looked at; the stream ends with the first that ends.
    """
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    if len(request.app.state.streams) >= MOST:
        return error_pages.page(request, 503, f"There are {MOST} browsers that watch: close some, or reload later.")
    return EventStream(feeds, request.app.state.streams)


class EventStream:
    """An answer that goes on until the browser leaves, the server ends or a minute is over.

    Args:
        streams: where it is kept while it goes on.
    """

    def __init__(self, feeds: Sequence[AsyncGenerator[LivePart, None]], streams: set[EventStream]) -> None:
        self._feeds = feeds
        self._streams = streams
        self._sending = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        self._streams.add(self)
        try:
            await self._go_on(receive, send)
        finally:
            self._streams.discard(self)

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
        with contextlib.suppress(OSError):  # a timeout, too: without its end, the server breaks the connection off
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
    """Return what has changed of a part as events, one for each element; and one that says that it was seen."""
    changed = ["".join(f"data: {line}\n" for line in _lines(html)) for html in part.since(before)]
    seen = [f"event: seen\ndata: {part.id}\n"] if part.is_fresh else []
    return "".join(f"{each}\n" for each in changed + seen).encode()


def _lines(html: str) -> list[str]:
    r"""Split at what ends a line of an event, and nothing else; browsers would take a bare ``\r`` for an end, too."""
    return html.replace("\r", "&#13;").split("\n")


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ending() -> None:
    """Wait until uvicorn was told to end: it waits for its answers without telling them, for as long as they go on."""
    while not getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "should_exit", False):  # noqa: ASYNC110  # uvicorn's, and no event
        await asyncio.sleep(TURN)
