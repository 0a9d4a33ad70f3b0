"""The functions that were registered with a queue, to be called with its messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from delayq.model.middleware import Middleware
from delayq.runtime.cron_handlers import CronHandlers


class HandlerRegistry:
    """What `Queue.handler`, `Queue.batch_handler` and `Queue.cron` have registered.

    Attributes:
        middleware: of the queue.
        crons: the functions of schedules.
        main: the function for all other messages, or a BatchHandler; None without one.
    """

    def __init__(self, middleware: Middleware) -> None:
        self.middleware = middleware
        self.crons = CronHandlers()
        self.main: Callable[[Any], Any] | None = None

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.main is not None or bool(self.crons)

    def wrap(self, around: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> None:
        """Put another function in the place of each: what `around` makes of it."""
        self.crons.wrap(around)
        if self.main is not None:
            self.main = around(self.main)
