"""A queue or a topic on another client and clock, during a test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from delayq.operations.message_store import RedisStore
from delayq.testing.face import BLOCKING, Face

Time = Callable[[], float | str]


@contextlib.contextmanager
def served_by(
    subject: Any,
    connect: Callable[[], Any],
    clock: Time = str,
    id_factory: Callable[[], str] | None = None,
    face: Face = BLOCKING,
) -> Iterator[None]:
    """Let a queue or a topic use other clients and a clock until the block ends, as if it had just been made.

    Handlers, schedules and middleware registered within the block are removed then; a handler may replace the queue's.
    """
    is_queue = isinstance(subject, face.queue)
    with _exchange_queue(subject, clock, face) if is_queue else _exchange_topic(subject, clock):
        subject._context.id_factory = id_factory
        vars(subject._executor).update(vars(type(subject._executor)(connect, True, None)))
        try:
            yield
        finally:
            if face is BLOCKING:  # async ones hold nothing that needs `close`
                subject.close()


@contextlib.contextmanager
def _exchange_queue(queue: Any, clock: Time, face: Face) -> Iterator[None]:
    context, executor, handlers = queue._context, queue._executor, queue.handlers
    with _kept(queue, context, executor, handlers, queue.middleware):
        for part in (handlers, queue.middleware):  # what is registered within the block goes into copies
            kept = {name: value.copy() for name, value in vars(part).items() if isinstance(value, dict | list)}
            vars(part).update(kept)
        handlers.is_replaceable = True
        queue._receiver = type(queue._receiver)(context, executor, partial(face.message, queue))
        queue._store = RedisStore(context)
        queue.events = face.ledger(context, executor)
        context.begin(clock)
        yield


@contextlib.contextmanager
def _exchange_topic(topic: Any, clock: Time) -> Iterator[None]:
    context, waits = topic._context, topic._waits  # groups share these objects
    with _kept(context, waits, topic._executor):
        new = type(context)(context.name, context._keys, context._expected, context.settings, clock)
        vars(context).update(vars(new))
        vars(waits).update(vars(type(waits)(context, topic._executor)))
        yield


@contextlib.contextmanager
def _kept(*parts: Any) -> Iterator[None]:
    """Restore the attributes of objects when the block ends."""
    kept = [(vars(part), dict(vars(part))) for part in parts]
    try:
        yield
    finally:
        for now, before in kept:
            now.clear()
            now.update(before)
