"""Consumers of the async face as ``delayq consume`` runs them: all in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from delayq.aio import Consumer, Message, Queue
from delayq.outcome import is_coroutine_function


def consumer_of(queue: Queue, **options: Any) -> Consumer:
    """Return a consumer of a queue; log lines of its handler, and of functions of schedules, carry their message."""
    queue.cron_handlers.wrap(_named)
    handler = queue.registered_handler
    return Consumer(queue, None if handler is None else _named(handler), **options)


def _named(handler: Callable[[Message], Any]) -> Callable[[Message], Any]:
    def bound(message: Message) -> Any:
        known = {"queue": message.queue, "id": message.id, "attempt": message.attempt}
        return structlog.contextvars.bound_contextvars(**known)

    def handle(message: Message) -> Any:
        with bound(message):
            return handler(message)

    async def handle_async(message: Message) -> Any:
        with bound(message):
            return await handler(message)

    return handle_async if is_coroutine_function(handler) else handle


class Awaited:
    """Consumers of the async face, to be run from a thread that waits for their end."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        self._consumers = consumers
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, **limits: Any) -> None:
        """Run all until each has ended, or a signal comes; see `Consumer.run`."""
        asyncio.run(self._run(limits))

    def stop(self) -> None:
        """End `run` soon; may be called from any thread."""
        if self._loop is not None and not self._loop.is_closed():
            for consumer in self._consumers:
                asyncio.run_coroutine_threadsafe(consumer.stop(), self._loop)

    async def _run(self, limits: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        runs = [asyncio.create_task(consumer.run(**limits)) for consumer in self._consumers]
        try:
            await asyncio.wait(runs, return_when=asyncio.FIRST_EXCEPTION)
            for consumer in self._consumers:
                if any(run.done() and run.exception() for run in runs):
                    await consumer.stop()
            await asyncio.gather(*runs)
        finally:
            for consumer in self._consumers:
                await consumer.queue.close()
