"""The tasks that run async handlers of batches."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from delayq import outcome as oc
from delayq.aio.crew import Crew
from delayq.aio.message import Message
from delayq.batch import Batching, Outcomes
from delayq.batches import parted
from delayq.collecting import Collector, room
from delayq.turns import SHUTDOWN


class Batches(Crew[Message]):
    """Collects messages, runs an async handler on each batch in a task, and keeps the outcomes until they are fetched.

    Args:
        batching: how messages are handled together; its function is awaited.
        burst: whether a batch is to wait no longer once nothing else is due.
        alone: is awaited with each message that is handled by itself.
        count: of batches at the same time.
        may_start: whether a message's lease still stands.
        on_outcome: is called after each batch.
    """

    def __init__(
        self,
        batching: Batching[Message],
        burst: bool,
        alone: Callable[[Message], Any],
        count: int,
        may_start: Callable[[Message], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        super().__init__(alone, count, may_start, on_outcome)
        self._batching = batching
        self._burst = burst
        self._collector = Collector(batching)
        self._timer: asyncio.TimerHandle | None = None

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beside those that are with the tasks; `ahead`: also for busy ones."""
        return room(self.count, self._batching.max_messages, unfinished, self.times.seconds if ahead else None)

    def submit(self, messages: list[Message]) -> None:
        """Let messages be handled in batches, in their order."""
        self._collector.add(messages)
        self._begin_what_may()

    @property
    def is_behind(self) -> bool:
        """Whether messages wait for others, of which there will be none."""
        return self._burst and self._collector.may_hasten

    def hasten(self) -> None:
        """Let what waits for other messages wait no longer."""
        self._collector.hasten()
        self._begin_what_may()

    def unstarted(self) -> list[Message]:
        """Take back what is in no batch that has begun."""
        self._set_timer(None)
        return self._collector.clear()

    def _begin_what_may(self) -> None:
        """Begin each batch for which it is time, while there is a place; come back when it is time for the next one."""
        left = self._collector.left()
        while left == 0 and len(self.tasks) < self.count:
            batch = self._collector.take()
            task = asyncio.create_task(self._work_on(batch), name=f"delayq-batch-{batch[0].id}")
            self.tasks.add(task)
            task.add_done_callback(partial(self._end_of, batch))
            left = self._collector.left()
        self._set_timer(left or None)  # a place that becomes free comes back by itself

    def _set_timer(self, seconds: float | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        events = asyncio.get_running_loop()
        self._timer = None if seconds is None else events.call_later(seconds, self._begin_what_may)

    def _end_of(self, batch: list[Message], task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if task.cancelled():  # before it began: else it has outcomes
            self._outcomes.extend((message, oc.HANDED_BACK) for message in batch)
        if not self._is_interrupted:
            self._begin_what_may()
        self._on_outcome()

    async def _work_on(self, batch: list[Message]) -> None:
        if self._batching.is_alone(batch[0]):
            await self._work(batch[0])
            return
        ready, outcomes = parted(batch, self._may_start)
        if ready:
            started = time.perf_counter()
            outcomes += await self._handled(ready)
            self.times.note(time.perf_counter() - started, self._own_times)
        self._outcomes.extend(outcomes)

    async def _handled(self, messages: Sequence[Message]) -> Outcomes[Message]:
        """Await the handler on messages, and return what becomes of each."""
        steps = self._batching.steps(messages)
        interrupted: asyncio.CancelledError | None = None
        try:
            given = next(steps)
            try:
                value = self._batching.function(given)
                returned = await value if inspect.isawaitable(value) else value
            except BaseException as error:  # noqa: BLE001  # SystemExit, too: a handler must not end its consumer
                if self._is_interrupted and isinstance(error, asyncio.CancelledError):
                    interrupted = error
                steps.throw(error)
            else:
                steps.send(returned)
        except StopIteration as ended:
            outcomes: Outcomes[Message] = ended.value
            return [
                (message, oc.Failed(error=SHUTDOWN))
                if interrupted is not None and isinstance(outcome, oc.Failed) and outcome.cause is interrupted
                else (message, outcome)
                for message, outcome in outcomes
            ]
        raise AssertionError("a batch is handled in one step")
