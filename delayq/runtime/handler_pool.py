"""The pools that run handlers: threads, tasks or processes."""

from __future__ import annotations

from typing import Protocol, TypeVar

from delayq.model import outcome as oc
from delayq.model.histogram import HandlerTimes

D = TypeVar("D")  # a message of either face, or a record


class HandlerPool(Protocol[D]):
    """Runs a handler on messages, and keeps the outcomes until they are fetched.

    Attributes:
        count: how many handlers, or batches, run at the same time.
        times: how long handlers have run.
    """

    count: int
    times: HandlerTimes

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beyond the `unfinished` ones; `ahead`: also for busy workers."""

    def submit(self, messages: list[D]) -> None: ...
    def adapt(self) -> None:
        """Wake as many workers as the handler's measured time requires."""

    def hasten(self) -> None:
        """Wake a worker for every message that waits."""

    @property
    def is_behind(self) -> bool:
        """Whether messages wait although workers sleep."""

    @property
    def has_outcomes(self) -> bool: ...
    def outcomes(self) -> list[tuple[D, oc.Outcome]]:
        """Fetch the outcomes since the last call."""

    def unstarted(self) -> list[D]:
        """Take back the messages that no worker has started."""

    def cancel(self, message: D) -> None:
        """End the handler that runs on a message, if it runs and can be ended; its outcome comes like any other."""

    def interrupt(self) -> bool:
        """Interrupt the running handlers; return whether any could be interrupted."""
