"""The consumer of the async face as ``delayq consume`` runs it, in an event loop of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from delayq.aio import Consumer, Queue
from delayq.model.batch_handler import BatchHandler
from delayq.model.delivery import Delivery
from delayq.model.outcome import is_coroutine_function


def consumer_of(weights: Mapping[Queue, int], strict: bool, **options: Any) -> Consumer:
    """Return a consumer of queues; log lines of their handlers, and of functions of schedules, carry their message."""
    for queue in weights if options["pool"] == "thread" else ():  # in processes they do so anyway
        queue.handlers.wrap(_named)
    return Consumer(list(weights) if strict else weights, strict=strict, **options)


def lines_named(subject: Delivery | list[Any]) -> Any:
    """Let log lines carry, until the block ends, the message or the batch that they are about."""
    if isinstance(subject, list):
        return structlog.contextvars.bound_contextvars(queue=subject[0].queue, messages=len(subject))
    return structlog.contextvars.bound_contextvars(queue=subject.queue, id=subject.id, attempt=subject.attempt)


def _named(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if isinstance(handler, BatchHandler):
        return handler.around(_named)

    def handle(subject: Any) -> Any:
        with lines_named(subject):
            return handler(subject)

    async def handle_async(subject: Any) -> Any:
        with lines_named(subject):
            return await handler(subject)

    return handle_async if is_coroutine_function(handler) else handle


class Awaited:
    """A consumer of the async face, to be run from a thread that waits for its end."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, **limits: Any) -> None:
        """Run it until it has ended, or a signal comes; see `Consumer.run`."""
        asyncio.run(self._run(limits))

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, while it runs."""
        return None if self._loop is None or self._loop.is_closed() else self._loop

    @property
    def is_running(self) -> bool:
        return self._consumer.is_running

    @property
    def stalled(self) -> float:
        return self._consumer.stalled

    def stop(self) -> None:
        """End `run` soon; may be called from any thread."""
        if self.loop is not None:
            asyncio.run_coroutine_threadsafe(self._consumer.stop(), self.loop)

    async def _run(self, limits: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._consumer.run(**limits)
        finally:
            for queue in self._consumer.queues:
                await queue.close()
