"""From several handlers, async and plain ones, to the one that a consumer runs."""

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
    """Return a function that hands each message to the one that it is for, `handler` for what is of no schedule.

    It is an async one if any of them is: then those that are plain each run on a thread of their own.

    Args:
        around: what is put around each.
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
    """Call a function on a thread, which nothing waits for when this is cancelled, as in `ThreadPool`."""
    events, context = asyncio.get_running_loop(), contextvars.copy_context()
    ended: asyncio.Future[Callable[[], Any]] = events.create_future()

    def run() -> None:
        try:
            value = context.run(function, message)
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: it is the delivery's
            result = partial(_raise, error)
        else:
            result = partial(_same, value)
        with contextlib.suppress(RuntimeError):  # the event loop has ended meanwhile
            events.call_soon_threadsafe(_settle, ended, result)

    threading.Thread(target=run, name="delayq-plain-handler", daemon=True).start()
    return (await ended)()


def _settle(ended: asyncio.Future[Callable[[], Any]], result: Callable[[], Any]) -> None:
    if not ended.done():  # else it was cancelled
        ended.set_result(result)


def _raise(error: BaseException) -> None:
    raise error


def _same(value: Any) -> Any:
    return value
