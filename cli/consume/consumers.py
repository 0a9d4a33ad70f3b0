"""The consumers of ``delayq consume``: one for blocking queues and one for async queues."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import click
import structlog

from delayq.aio import Consumer as AsyncConsumer
from delayq.aio import Queue as AsyncQueue
from delayq.consumer import Consumer
from delayq.model.batch_handler import BatchHandler
from delayq.model.delivery import Delivery
from delayq.model.outcome import is_coroutine_function
from delayq.queue import Queue

from .program import ProgramHandler


def consumers_of(
    weights: Mapping[Queue | AsyncQueue, int | None], programs: ProgramHandler | None, options: dict[str, Any]
) -> list[Consumer | AsyncConsumerRunner]:
    """Return a consumer for blocking queues, one for async queues, or both. Log lines of handlers name their message.

    Args:
        weights: None for a queue without a weight.
        programs: the handler of all queues; None for the registered handlers.

    Raises:
        click.UsageError: weights or --strict with both kinds of queues, whose consumers share nothing.
    """
    plain = {queue: weight or 1 for queue, weight in weights.items() if isinstance(queue, Queue)}
    awaited = {queue: weight or 1 for queue, weight in weights.items() if isinstance(queue, AsyncQueue)}
    strict = options["strict"]
    if plain and awaited and (strict or any(weights.values())):
        raise click.UsageError(
            f"weights and --strict need queues of one kind, but {', '.join(queue.name for queue in awaited)} of "
            "delayq.aio cannot share handlers with the others: run one delayq consume for each kind"
        )
    if options["pool"] == "thread":  # a process of the pool binds the names itself
        for queue in weights if programs is None else awaited:
            queue.handlers.wrap(_with_log_context)
    consumers: list[Consumer | AsyncConsumerRunner] = []
    if plain:
        consumers.append(Consumer(list(plain) if strict else plain, programs, **options))
    if awaited:
        consumers.append(AsyncConsumerRunner(AsyncConsumer(list(awaited) if strict else awaited, **options)))
    return consumers


def log_context(subject: Delivery | list[Any]) -> Any:
    """Let log lines name their message or batch until the block ends."""
    if isinstance(subject, list):
        return structlog.contextvars.bound_contextvars(queue=subject[0].queue, messages=len(subject))
    return structlog.contextvars.bound_contextvars(queue=subject.queue, id=subject.id, attempt=subject.attempt)


def _with_log_context(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if isinstance(handler, BatchHandler):
        return handler.around(_with_log_context)

    def handle(subject: Any) -> Any:
        with log_context(subject):
            return handler(subject)

    async def handle_async(subject: Any) -> Any:
        with log_context(subject):
            return await handler(subject)

    return handle_async if is_coroutine_function(handler) else handle


class AsyncConsumerRunner:
    """An async consumer that a thread runs and waits for."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, **limits: Any) -> None:
        """Run it until it ends or a signal arrives; see `Consumer.run`."""
        asyncio.run(self._run(limits))

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop, while it runs."""
        return None if self._loop is None or self._loop.is_closed() else self._loop

    is_running, stalled, is_retiring, handled, abandoned = (
        property(attrgetter(f"_consumer.{name}"))
        for name in ("is_running", "stalled", "is_retiring", "handled", "abandoned")
    )

    def take_signal(self) -> None:
        """End `run` soon, or at once on the second call; any thread may call it."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._consumer.take_signal)

    def retire(self) -> None:
        """End `run` soon, but let handlers take their time; any thread may call it."""
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self._consumer.retire)

    async def _run(self, limits: dict[str, Any]) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            await self._consumer.run(**limits)
        finally:
            for queue in self._consumer.queues:
                await queue.close()
