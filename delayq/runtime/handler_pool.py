"""What runs handlers: threads, tasks or processes."""

from __future__ import annotations

from typing import Protocol, TypeVar

from delayq.model import outcome as oc
from delayq.model.histogram import HandlerTimes

D = TypeVar("D")  # a message of either face, or a record


class HandlerPool(Protocol[D]):
    """Runs a handler on messages, and keeps the outcomes until they are fetched.

    Attributes:
        count: of handlers, or batches, that run at the same time.
        times: how long handlers have run.
    """

    count: int
    times: HandlerTimes

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beside the `unfinished`; `ahead`: also for workers that are busy."""

    def submit(self, messages: list[D]) -> None: ...
    def adapt(self) -> None:
        """Wake as many workers as the handler's measured time calls for."""

    def hasten(self) -> None:
        """Wake a worker for every message that waits."""

    @property
    def is_behind(self) -> bool:
        """Whether messages wait although workers sleep."""

    @property
    def has_outcomes(self) -> bool: ...
    def outcomes(self) -> list[tuple[D, oc.Outcome]]:
        """Fetch the outcomes since the last time."""

    def unstarted(self) -> list[D]:
        """Take back what no worker has started."""

    def interrupt(self) -> bool:
        """Tell the handlers that run to end; return whether there are any that can be told."""
