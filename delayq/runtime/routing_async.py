"""Combines several handlers, async and plain, into the one that a consumer runs."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from delayq.model.delivery import Delivery
from delayq.model.outcome import is_coroutine_function
from delayq.runtime.cron_handlers import Around, CronHandlers, Handler


def routed(crons: CronHandlers, handler: Handler | None, queue: str, around: Around) -> Handler:
    """Return a function that passes each message to its function: `handler` if it has no schedule.

    It is async if any of them is: then each plain one runs on a separate thread.

    Args:
        around: wraps each function.
    """
    if not any(map(is_coroutine_function, [handler, *crons])):
        choose = crons.route(handler, queue, around)
        return lambda message: choose(message)(message)
    choose = crons.route(handler, queue, lambda function: awaited(around(function)))

    async def call(message: Delivery[Any]) -> Any:
        return await choose(message)(message)

    return call


def awaited(function: Handler) -> Handler:
    """Return an async function: a plain one runs on a thread."""
    return function if is_coroutine_function(function) else partial(_on_a_thread, function)


async def _on_a_thread(function: Handler, message: Delivery[Any]) -> Any:
    """Call a function on a thread; after a cancel, nothing waits for that thread, as in `ThreadPool`."""
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


def _settle(ended: asyncio.Future[Callable[[], Any]], result: Callable[[], Any]) -> None:
    if not ended.done():  # otherwise it was cancelled
        ended.set_result(result)


def _raise(error: BaseException) -> None:
    raise error


def _same(value: Any) -> Any:
    return value
