"""A plain handler beside async ones: it runs on a thread, and the event loop awaits it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from delayq.model.delivery import Delivery
from delayq.model.outcome import is_coroutine_function

Handler: TypeAlias = Callable[[Any], Any]


def awaited(function: Handler) -> Handler:
    """Return an async function: a plain one runs on a thread."""
    return function if is_coroutine_function(function) else partial(_on_a_thread, function)


async def _on_a_thread(function: Handler, message: Delivery[Any]) -> Any:
    """Call a function on a thread; after a cancel, nothing waits for that thread, as in `ThreadPool`."""
    if isinstance(message, Delivery):
        message.on_cancel = _nothing  # the thread has to look at `Message.cancelled`, and its outcome is awaited
    events, context = asyncio.get_running_loop(), contextvars.copy_context()
    ended: asyncio.Future[Callable[[], Any]] = events.create_future()

    def run() -> None:
        try:
            value = context.run(function, message)
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: it fails the delivery
            result = partial(_raise, error)
        else:
            result = partial(_same, value)
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            events.call_soon_threadsafe(_settle, ended, result)

    threading.Thread(target=run, name="delayq-plain-handler", daemon=True).start()
    return (await ended)()


def _nothing() -> None:
    pass


def _settle(ended: asyncio.Future[Callable[[], Any]], result: Callable[[], Any]) -> None:
    if not ended.done():  # otherwise it was cancelled
        ended.set_result(result)


def _raise(error: BaseException) -> None:
    raise error


def _same(value: Any) -> Any:
    return value
