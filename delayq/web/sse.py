"""Server-sent events: what has changed goes to the browsers that watch."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncGenerator

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from delayq.web import error_pages

MOST = 200
"""Browsers that may watch at once."""

SECONDS = 60.0
"""A stream ends after that, and the browser asks again: whoever was logged out meanwhile sees no more."""

PATIENCE = 20.0
"""Seconds that a browser may take to accept what was sent."""

TURN = 1.0
"""Between two looks at whether the server ends."""

_START: Message = {
    "type": "http.response.start",
    "status": 200,
    "headers": [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"x-accel-buffering", b"no"),  # nginx would hold events back until it has some kilobytes of them
    ],
}


def stream(request: Request, texts: AsyncGenerator[str, None]) -> Response | EventStream:
    """Return an answer that sends each text of an endless iterator to the browser, if it differs from the one before.

    The texts are HTML: the inside of the element that has ``hx-sse:connect``.
    """
    if request.method == "HEAD":
        return Response(media_type="text/event-stream")
    if len(request.app.state.streams) >= MOST:
        return error_pages.page(request, 503, f"There are {MOST} browsers that watch: close some, or reload later.")
    return EventStream(texts, request.app.state.streams)


class EventStream:
    """An answer that goes on until the browser leaves, the server ends or a minute is over.

    Args:
        streams: where it is kept while it goes on.
    """

    def __init__(self, texts: AsyncGenerator[str, None], streams: set[EventStream]) -> None:
        self._texts = texts
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002  # ASGI's signature
        self._streams.add(self)
        try:
            await self._go_on(receive, send)
        finally:
            self._streams.discard(self)

    async def _go_on(self, receive: Receive, send: Send) -> None:
        await send(_START)
        telling = asyncio.create_task(self._tell(send))
        leaving = asyncio.create_task(_left(receive))
        ending = asyncio.create_task(_ending())
        try:
            await asyncio.wait({telling, leaving, ending}, timeout=SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (telling, leaving, ending):
                task.cancel()
            await asyncio.gather(telling, leaving, ending, return_exceptions=True)
        with contextlib.suppress(OSError):  # a timeout, too: without its end, the server breaks the connection off
            async with asyncio.timeout(PATIENCE):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _tell(self, send: Send) -> None:
        last = None
        async with contextlib.aclosing(self._texts) as texts:
            async for text in texts:
                if text != last:
                    async with asyncio.timeout(PATIENCE):
                        await send({"type": "http.response.body", "body": event(text), "more_body": True})
                    last = text


def event(text: str) -> bytes:
    """Return a text as an event."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"{lines}\n".encode()


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ending() -> None:
    """Wait until uvicorn was told to end: it waits for its answers without telling them, for as long as they go on."""
    while not getattr(getattr(signal.getsignal(signal.SIGTERM), "__self__", None), "should_exit", False):  # noqa: ASYNC110  # uvicorn's, and no event
        await asyncio.sleep(TURN)
