"""Messages that wait to be handled together: decides when a batch begins and what is in it. Both faces use it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from delayq.model.batch_handler import Batching
from delayq.model.delivery import Delivery

AHEAD_SECONDS = 1.0  # a batch fetched beyond the free places should begin within this time

D = TypeVar("D", bound=Delivery)


class BatchBuffer(Generic[D]):
    """Messages in the order of their arrival, until a batch of them begins.

    A batch is ready when it is full, when its first message has waited long enough, or after `hasten`; it may grow
    until a handler is free. A message that is handled by itself begins at once, and so does a suspect.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, batching: Batching[D], clock: Callable[[], float] = time.monotonic) -> None:
        self._most = batching.max_messages
        self._wait = batching.max_wait
        self._is_alone = batching.is_alone
        self._clock = clock
        self._waiting: deque[tuple[float, D]] = deque()  # with the time by which its batch must begin
        self._alone: deque[D] = deque()
        self._hastened = 0  # how many of the first do not wait for others

    def add(self, messages: Iterable[D]) -> None:
        """Add messages."""
        until = self._clock() + self._wait
        for message in messages:
            if self._is_alone(message):
                self._alone.append(message)
            elif message.is_suspect:  # while it waits, nothing else is fetched
                self._waiting.append((until - self._wait, message))
            else:
                self._waiting.append((until, message))

    def left(self) -> float | None:
        """Return the seconds until a batch must begin, 0 for now; None if nothing waits."""
        if self._alone or self._hastened or len(self._waiting) >= self._most:
            return 0.0
        return max(0.0, self._waiting[0][0] - self._clock()) if self._waiting else None

    def take(self) -> list[D]:
        """Return the next batch, even before its time; empty if nothing waits."""
        if self._alone:
            return [self._alone.popleft()]
        taken = [self._waiting.popleft()[1] for _ in range(min(self._most, len(self._waiting)))]
        self._hastened = max(0, self._hastened - len(taken))
        return taken

    @property
    def may_hasten(self) -> bool:
        """Whether any message still waits for others to join its batch."""
        return len(self._waiting) > self._hastened

    def hasten(self) -> None:
        """Let the messages that are here wait for no others."""
        self._hastened = len(self._waiting)

    def clear(self) -> list[D]:
        """Take back all waiting messages."""
        taken = [*self._alone, *(message for _, message in self._waiting)]
        self._alone.clear()
        self._waiting.clear()
        self._hastened = 0
        return taken


def room(concurrency: int, most: int, unfinished: int, batch_seconds: float | None) -> int:
    """Return how many messages to claim now: a batch per handler, and one more if batches are known to be quick."""
    is_quick = batch_seconds is not None and batch_seconds <= concurrency * AHEAD_SECONDS
    return max(0, (concurrency + is_quick) * most - unfinished)
