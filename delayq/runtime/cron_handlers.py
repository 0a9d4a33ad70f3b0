"""Handlers of schedules: which function handles a message."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, TypeVar

from delayq.errors import HandlerMissing, InvalidInput
from delayq.model.delivery import Delivery
from delayq.model.envelope import Headers
from delayq.model.occurrence import Plan
from delayq.model.typed_payload import adapt
from delayq.model.units import Seconds
from delayq.operations import schedules
from delayq.operations.queue_context import QueueContext

Handler: TypeAlias = Callable[[Any], Any]
Around: TypeAlias = Callable[[Handler], Handler]
Given = TypeVar("Given", bound=Handler)


class CronHandlers:
    """The functions that were registered with `Queue.cron`, and their schedules."""

    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}
        self.prepared: list[schedules.Prepared] = []

    def __bool__(self) -> bool:
        return bool(self._handlers)

    def __iter__(self) -> Iterator[Handler]:
        return iter(self._handlers.values())

    def registering(
        self,
        context: QueueContext,
        check: Callable[[object], None],
        plan: Plan,
        name: str | None,
        payload: Any,
        max_retries: int | None,
        headers: Headers | None,
        timeout: Seconds | None,
    ) -> Callable[[Given], Given]:
        """Return the decorator for `Queue.cron`.

        Args:
            check: raises InvalidInput for a function that the queue's consumers could not run.
        """

        def register(function: Given) -> Given:
            check(function)
            chosen = getattr(function, "__name__", "") if name is None else name
            prepared = schedules.prepare(context, chosen, plan, payload, max_retries, headers, timeout)
            self.register(prepared, adapt(function))
            return function

        return register

    def register(self, prepared: schedules.Prepared, handler: Handler) -> None:
        """Register a function for the occurrences of a schedule; raise InvalidInput if there is one already."""
        if prepared.name in self._handlers:
            raise InvalidInput(f"schedule {prepared.name!r} already has a handler: give one of them another name=")
        self._handlers[prepared.name] = handler
        self.prepared.append(prepared)

    def takes(self, message: Delivery[Any]) -> bool:
        """Whether a message is for one of these functions, or for one that is missing here."""
        found = message.occurrence
        return found is not None and (found.name in self._handlers or found.plan.own)

    def wrap(self, around: Around) -> None:
        """Replace each function by what `around` makes of it."""
        self._handlers = {name: around(handler) for name, handler in self._handlers.items()}

    def route(self, handler: Handler | None, queue: str, around: Around) -> Callable[[Delivery[Any]], Handler]:
        """Return a function that chooses the function for a message: `handler` if it has no schedule.

        Args:
            around: wraps each function, including the one that raises HandlerMissing.
        """
        own = {name: around(function) for name, function in self._handlers.items()}

        def refuse(message: Delivery[Any]) -> None:
            name = message.schedule
            if name is None:
                raise HandlerMissing(
                    f"queue {queue} has no handler here, only handlers of schedules: see @queue.handler"
                )
            remove = shlex.join(["delayq", "cron", "remove", queue, name])
            raise HandlerMissing(
                f"schedule {name!r} has no handler here: this consumer lacks its @queue.cron function; if that was "
                f"renamed or removed, remove the old schedule: {remove}"
            )

        missing = around(refuse)
        others = missing if handler is None else around(handler)

        def choose(message: Delivery[Any]) -> Handler:
            found = message.occurrence
            if found is None:
                return others
            return own.get(found.name) or (missing if found.plan.own else others)

        return choose
