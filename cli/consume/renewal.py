"""When a consumer process is replaced by a new one, as it sees it itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Protocol

import click

from delayq.model.middleware import Middleware
from delayq.runtime.recycling import Recycling, resident_bytes

from . import liveness_pipe


class RenewedConsumer(Protocol):
    """A consumer that can be asked to end without a hurry."""

    @property
    def handled(self) -> int: ...
    @property
    def is_running(self) -> bool: ...
    def take_signal(self) -> None: ...
    def retire(self) -> None: ...


class Renewal:
    """Whether this process has reached its limits.

    Args:
        recycling: the limits; each process draws its own.
    """

    def __init__(self, recycling: Recycling) -> None:
        self._recycling = recycling
        self._limits = recycling.drawn()
        self._consumers: Sequence[RenewedConsumer] = ()
        self._fresh: int | None = None  # bytes of memory before the first message
        self._refusal: str | None = None

    def note_fresh(self, middleware: Middleware) -> None:
        """Measure this process when its consumers are ready, before their first messages.

        Args:
            middleware: of the last queue, whose functions are called last.
        """
        if self._recycling.memory is not None:
            middleware.on_start(self._measure)

    def watch(self, consumers: Sequence[RenewedConsumer]) -> None:
        """Watch these."""
        self._consumers = consumers

    def state(self) -> bytes:
        """Return what to tell the supervisor; stop the consumers if the process had too much memory from the start."""
        consumers = self._consumers
        if not consumers or not all(each.is_running for each in consumers):
            return liveness_pipe.STARTING
        if refusal := self._recycling.refusal(self._fresh):
            self._refusal = f"--recycle-memory: {refusal}"
            for each in consumers:
                each.take_signal()
            return liveness_pipe.STARTING
        is_worn = self._limits.is_worn(sum(each.handled for each in consumers)) or self._limits.is_large(os.getpid())
        return liveness_pipe.WORN if is_worn else liveness_pipe.RUNNING

    def retire(self) -> None:
        """Let the consumers end once their handlers have."""
        for each in self._consumers:
            each.retire()

    def _measure(self, _consumer: object) -> None:
        self._fresh = resident_bytes(os.getpid())

    def check(self) -> None:
        """Raise a UsageError, after a run, if it was stopped for its memory."""
        if self._refusal is not None:
            raise click.UsageError(self._refusal)
