"""The threads that run handlers of batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from delayq.model import outcome as oc
from delayq.model.batch_handler import Batching, Outcomes
from delayq.model.delivery import Delivery
from delayq.runtime.batch_buffer import BatchBuffer, room
from delayq.runtime.thread_pool import ThreadPool
from delayq.transport import trampoline

D = TypeVar("D", bound=Delivery)


class BatchPool(ThreadPool[D]):
    """Threads that collect messages, run a handler on each batch, and keep the outcomes until they are fetched.

    Args:
        batching: how messages are handled together.
        burst: whether a batch stops waiting once nothing else is due.
        alone: called with each message that is handled by itself.
        count: of threads, and so of batches at the same time.
        may_start: whether a message's lease is still valid.
        on_outcome: called, on the handler's thread, after each batch.
    """

    def __init__(
        self,
        batching: Batching[D],
        burst: bool,
        alone: Callable[[D], Any],
        count: int,
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        super().__init__(alone, count, may_start, on_outcome)
        self._batching = batching
        self._burst = burst
        self._collector = BatchBuffer(batching)
        self._changed = threading.Condition()  # notified when the buffer changes
        self._turn = threading.Lock()  # held by the one thread that waits for a batch; the others wait for the lock

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beyond those that the threads have; `ahead`: also for busy threads."""
        return room(self.count, self._batching.max_messages, unfinished, self.times.seconds if ahead else None)

    def submit(self, messages: list[D]) -> None:
        """Let messages be handled in batches, in order."""
        with self._changed:
            self._collector.add(messages)
            self._changed.notify_all()

    def adapt(self) -> None:
        """Do nothing: a free thread always waits for the next batch."""

    @property
    def is_behind(self) -> bool:
        """Whether messages wait for others that will not come."""
        return self._burst and self._collector.may_hasten

    def hasten(self) -> None:
        """Let messages wait for no others."""
        with self._changed:
            self._collector.hasten()
            self._changed.notify_all()

    def unstarted(self) -> list[D]:
        """Take back the messages of batches that have not begun."""
        with self._changed:
            return self._collector.clear()

    def stop(self) -> None:
        """Let the threads end once their handlers have finished."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _work(self) -> None:
        times = self.times.own()
        while True:
            with self._turn:
                batch = self._next()
            if not batch:
                return
            self._handle(batch, times)
            del batch  # else an idle thread would keep its messages
            self._on_outcome()

    def _next(self) -> list[D]:
        """Wait for a batch; return an empty one at the end."""
        with self._changed:
            while not self._stopped:
                left = self._collector.left()
                if left == 0:
                    return self._collector.take()
                self._changed.wait(left)
        return []

    def _handle(self, batch: list[D], times: list[int]) -> None:
        """Handle a batch. No variable here holds its outcomes: their errors hold this frame, which would be a cycle."""
        if self._batching.is_alone(batch[0]):
            self._outcomes.extend((message, self._run(message, times)) for message in batch)
            return
        ready, lost = parted(batch, self._may_start)
        self._outcomes.extend(lost)
        if ready:
            started = time.perf_counter()
            self._outcomes.extend(handled(self._batching, ready))
            self.times.note(time.perf_counter() - started, times)


def parted(batch: Iterable[D], may_start: Callable[[D], bool]) -> tuple[list[D], Outcomes[D]]:
    """Return the messages that may be started, and the outcomes of the others."""
    ready: list[D] = []
    lost: Outcomes[D] = []
    for message in batch:
        if may_start(message):
            ready.append(message)
        else:
            lost.append((message, oc.RELEASED))
    return ready, lost


def handled(batching: Batching[D], messages: Sequence[D]) -> Outcomes[D]:
    """Run the handler on messages, in this thread, and return what becomes of each."""
    return trampoline.run(batching.steps(messages), batching.function)
