"""The tasks that run async handlers of batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from delayq.model import outcome as oc
from delayq.model.batch_handler import Batching, Outcomes
from delayq.model.delivery import Delivery
from delayq.runtime.batch_buffer import BatchBuffer, room
from delayq.runtime.batch_pool import parted
from delayq.runtime.task_pool import TaskPool
from delayq.transport import trampoline

D = TypeVar("D", bound=Delivery[Any])


class BatchPool(TaskPool[D]):
    """Collects messages, runs an async handler on each batch in a task, and keeps the outcomes until they are fetched.

    Args:
        batching: how messages are handled together; its function is awaited.
        burst: whether a batch stops waiting once nothing else is due.
        choose: returns the function for a message that is handled by itself.
        count: of batches at the same time.
        may_start: whether a message's lease is still valid.
        on_outcome: called after each batch.
    """

    def __init__(
        self,
        batching: Batching[D],
        burst: bool,
        choose: Callable[[D], Callable[[D], Any]],
        count: int,
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        super().__init__(choose, count, may_start, on_outcome)
        self._batching = batching
        self._burst = burst
        self._collector = BatchBuffer(batching)
        self._timer: asyncio.TimerHandle | None = None

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beyond those that the tasks have; `ahead`: also for busy tasks."""
        return room(self.count, self._batching.max_messages, unfinished, self.times.seconds if ahead else None)

    def submit(self, messages: list[D]) -> None:
        """Let messages be handled in batches, in order."""
        self._collector.add(messages)
        self._begin_what_may()

    @property
    def is_behind(self) -> bool:
        """Whether messages wait for others that will not come."""
        return self._burst and self._collector.may_hasten

    def hasten(self) -> None:
        """Let messages wait for no others."""
        self._collector.hasten()
        self._begin_what_may()

    def unstarted(self) -> list[D]:
        """Take back the messages of batches that have not begun."""
        self._set_timer(None)
        return self._collector.clear()

    def _begin_what_may(self) -> None:
        """Begin the batches that are ready, while there is a place, and set the timer for the next one."""
        left = self._collector.left()
        while left == 0 and len(self.tasks) < self.count:
            batch = self._collector.take()
            task = asyncio.create_task(self._work_on(batch), name=f"delayq-batch-{batch[0].id}")
            self.tasks.add(task)
            task.add_done_callback(partial(self._end_of, batch))
            left = self._collector.left()
        self._set_timer(left or None)  # without a free place, the end of a batch calls this again

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        events = asyncio.get_running_loop()
        self._timer = None if seconds is None else events.call_later(seconds, self._begin_what_may)

    def _end_of(self, batch: list[D], task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._waiting.pop(task, None)
        if task.cancelled():  # before it began: otherwise it has outcomes
            self._outcomes.extend((message, oc.RELEASED) for message in batch)
        if not self._is_interrupted:
            self._begin_what_may()
        self._on_outcome()

    async def _work_on(self, batch: list[D]) -> None:
        if self._batching.is_alone(batch[0]):
            await self._handle(batch[0])
            return
        ready, outcomes = parted(batch, self._may_start)
        if ready:
            started = time.perf_counter()
            outcomes += await self._handled(ready)
            self.times.note(time.perf_counter() - started, self._own_times)
        self._outcomes.extend(outcomes)

    async def _handled(self, messages: Sequence[D]) -> Outcomes[D]:
        """Await the handler on messages, and return what becomes of each."""
        interrupted: BaseException | None = None

        async def call(given: Any) -> Any:
            nonlocal interrupted
            try:
                returned = await self._batching.function(given)
                if self._is_interrupted:  # the handler swallowed the cancel, and its work may not be done
                    raise asyncio.CancelledError  # noqa: TRY301
            except BaseException as error:  # drivers may turn a cancel into another error
                interrupted = error if self._is_interrupted else None
                raise
            return returned

        outcomes = await trampoline.run_async(self._batching.steps(messages), call)
        return [
            (message, oc.INTERRUPTED)
            if interrupted is not None and isinstance(outcome, oc.Failed) and outcome.cause is interrupted
            else (message, outcome)
            for message, outcome in outcomes
        ]
