"""A queue on another client and clock, for the time of a test."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator

from delayq.ledger import Ledger
from delayq.model.message import Message
from delayq.operations.message_store import RedisStore
from delayq.queue import Queue
from delayq.runtime.receive_wait import Receiver
from delayq.transport.executor import Client, Executor


@contextlib.contextmanager
def served_by(queue: Queue, client: Client, clock: Callable[[], float | str] = str) -> Iterator[None]:
    """Let a queue use another client and clock until the block ends, as if nothing was known of Redis before.

    Handlers, schedules and middleware that are registered within are forgotten then; a handler may replace the queue's.
    """
    context, executor, handlers = queue._context, queue._executor, queue.handlers
    copied = (handlers, handlers.crons, queue.middleware)  # what is registered within the block goes into copies
    kept = [(vars(part), dict(vars(part))) for part in (queue, context, executor, *copied)]
    for part in (handlers.crons, queue.middleware):
        vars(part).update({name: copy.copy(value) for name, value in vars(part).items()})
    handlers.is_replaceable = True
    queue._receiver = Receiver(context, executor, Message)
    queue._store = RedisStore(context)
    queue._events = Ledger(context, executor)
    context.begin(clock)
    vars(executor).update(vars(Executor(lambda: client, shared=True)))
    try:
        yield
    finally:
        queue.close()
        for now, before in kept:
            now.clear()
            now.update(before)
