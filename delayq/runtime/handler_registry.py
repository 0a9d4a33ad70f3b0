"""The functions that were registered with a queue to handle its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.errors import InvalidInput
from delayq.model.batch_handler import BatchHandler
from delayq.model.middleware import Middleware
from delayq.runtime.cron_handlers import CronHandlers


class HandlerRegistry:
    """The functions registered by `Queue.handler`, `Queue.batch_handler` and `Queue.cron`.

    Attributes:
        middleware: of the queue.
        crons: the functions of schedules.
        main: the function for all other messages, or a BatchHandler; None without one.
        is_replaceable: another function may replace it, as in a test.
    """

    def __init__(self, middleware: Middleware) -> None:
        self.middleware = middleware
        self.crons = CronHandlers()
        self.main: Callable[[Any], Any] | None = None
        self.is_replaceable = False

    def __bool__(self) -> bool:
        """Whether any function is registered."""
        return self.main is not None or bool(self.crons)

    def register(self, handler: Callable[[Any], Any], queue: str) -> None:
        """Register the function for all messages; raise InvalidInput if there is one: only one of the two could run."""
        if self.main is not None and not self.is_replaceable:
            there = "batch_handler" if isinstance(self.main, BatchHandler) else "handler"
            raise InvalidInput(
                f"queue {queue} already has a function of @queue.{there}: give the second one its own queue, or let "
                "one function choose by the message"
            )
        self.main = handler

    def wrap(self, around: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> None:
        """Replace each function by what `around` makes of it."""
        self.crons.wrap(around)
        if self.main is not None:
            self.main = around(self.main)
