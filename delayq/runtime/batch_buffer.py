"""What waits to be handled together: when a batch begins, and what is in it. For both faces, without I/O."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from delayq.model.batch_handler import Batching
from delayq.model.delivery import Delivery

AHEAD_SECONDS = 1.0  # a batch that is fetched beyond the free places should begin within this time

D = TypeVar("D", bound=Delivery)


class BatchBuffer(Generic[D]):
    """Messages in the order of their arrival, until a batch of them begins.

    It begins when it is full, when its first message has waited for its time, or when told to; not before there is
    somebody to handle it, so that it may have grown since. A message that is to be handled by itself, and one that had
    better run alone, begins at once.

    Args:
        clock: a monotonic one, in seconds.
    """

    def __init__(self, batching: Batching[D], clock: Callable[[], float] = time.monotonic) -> None:
        self._most = batching.max_messages
        self._wait = batching.max_wait
        self._is_alone = batching.is_alone
        self._clock = clock
        self._waiting: deque[tuple[float, D]] = deque()  # with the time by which its batch is to begin
        self._alone: deque[D] = deque()
        self._hastened = 0  # so many of the first are not to wait for others

    def add(self, messages: Iterable[D]) -> None:
        """Let messages wait."""
        until = self._clock() + self._wait
        for message in messages:
            if self._is_alone(message):
                self._alone.append(message)
            elif message.is_suspect:  # while it waits, nothing else is fetched
                self._waiting.append((until - self._wait, message))
            else:
                self._waiting.append((until, message))

    def left(self) -> float | None:
        """Return the seconds until a batch is to begin, 0 for now; None when nothing waits."""
        if self._alone or self._hastened or len(self._waiting) >= self._most:
            return 0.0
        return max(0.0, self._waiting[0][0] - self._clock()) if self._waiting else None

    def take(self) -> list[D]:
        """Return the next batch, whether or not it is time for it; empty when nothing waits."""
        if self._alone:
            return [self._alone.popleft()]
        taken = [self._waiting.popleft()[1] for _ in range(min(self._most, len(self._waiting)))]
        self._hastened = max(0, self._hastened - len(taken))
        return taken

    @property
    def may_hasten(self) -> bool:
        """Whether there is anything that waits for more messages, as far as it was not told otherwise."""
        return len(self._waiting) > self._hastened

    def hasten(self) -> None:
        """Let what is there wait for no more messages."""
        self._hastened = len(self._waiting)

    def clear(self) -> list[D]:
        """Take back all that waits."""
        taken = [*self._alone, *(message for _, message in self._waiting)]
        self._alone.clear()
        self._waiting.clear()
        self._hastened = 0
        return taken


def room(concurrency: int, most: int, unfinished: int, batch_seconds: float | None) -> int:
    """Return how many messages to claim now: a batch for each place, and one more if batches are known to be quick."""
    is_quick = batch_seconds is not None and batch_seconds <= concurrency * AHEAD_SECONDS
    return max(0, (concurrency + is_quick) * most - unfinished)
