"""From the queues that ``delayq consume`` is given to their consumers: one for those of each face."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import click

from delayq.aio import Queue as AsyncQueue
from delayq.consumer import Consumer
from delayq.model.batch_handler import BatchHandler
from delayq.queue import Queue

from .consumers import Awaited, consumer_of, lines_named
from .program import Programs


def consumers_of(
    weights: Mapping[Queue | AsyncQueue, int | None], programs: Programs | None, options: dict[str, Any]
) -> list[Consumer | Awaited]:
    """Return a consumer of the queues of each face.

    Args:
        weights: None for a queue for which none was given.
        programs: the handler of all; that of each when None.

    Raises:
        click.UsageError: weights or priority over queues of both faces, which share nothing.
    """
    plain = {queue: weight or 1 for queue, weight in weights.items() if isinstance(queue, Queue)}
    awaited = {queue: weight or 1 for queue, weight in weights.items() if isinstance(queue, AsyncQueue)}
    if plain and awaited and (options["strict"] or any(weights.values())):
        raise click.UsageError(
            f"weights and --strict are for queues of one kind, and {', '.join(queue.name for queue in awaited)} of "
            "delayq.aio cannot share handlers with the others: give each kind to a delayq consume of its own"
        )
    consumers: list[Consumer | Awaited] = []
    if plain:
        for queue in plain if programs is None and options["pool"] == "thread" else ():  # in processes they have names
            _name_lines(queue)
        consumers.append(Consumer(list(plain) if options["strict"] else plain, programs, **options))
    if awaited:
        consumers.append(Awaited(consumer_of(awaited, **options)))
    return consumers


def _name_lines(queue: Queue) -> None:
    """Let the log lines of a queue's handler, and those of functions of schedules, carry their message."""
    queue.handlers.wrap(_with_named_lines)


def _with_named_lines(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if isinstance(handler, BatchHandler):
        return handler.around(_with_named_lines)

    def handle(subject: Any) -> Any:
        with lines_named(subject):
            return handler(subject)

    return handle
