"""Messages as rows: what a send checks, without a look at Redis."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

import msgspec

from delayq.aio.queue import Queue as AsyncQueue
from delayq.errors import InvalidInput
from delayq.model.delivery import Outgoing, unknown_option
from delayq.operations import outbox as operations
from delayq.queue import Queue

__all__ = ["operations"]  # for the relay

OPTIONS = Outgoing.__struct_fields__[1:]


def message_of(payload: Any, options: dict[str, Any]) -> Outgoing:
    """Return a message: of a payload and options, or another message, such as a task's, with these options."""
    if options.get("wait_replicas"):
        raise InvalidInput(f"wait_replicas={options['wait_replicas']!r} is the relay's option: give it --wait-replicas")
    options = {name: value for name, value in options.items() if name != "wait_replicas"}
    for name in options:
        if name not in OPTIONS:
            raise unknown_option(name, call="outbox.send")
    if isinstance(payload, Outgoing):
        return msgspec.structs.replace(payload, **options)
    return Outgoing(payload, **options)


def rows(queue: Queue | AsyncQueue, messages: Iterable[Outgoing], is_batch: bool) -> list[operations.Row]:
    """Return messages as rows, checked as `Queue.send` checks them, within the queue's middleware.

    Raises:
        InvalidInput: for any of them.
    """
    if not isinstance(queue, Queue | AsyncQueue):
        raise InvalidInput(f"{queue!r} is not a queue: give outbox.send a session, a delayq.Queue and a payload")
    made: Any = queue.execute(operations.rows_of, messages, is_batch)
    if not inspect.iscoroutine(made):
        return made  # type: ignore[no-any-return]
    try:
        made.send(None)  # it has nothing to wait for
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("rows_of makes no round trip")
