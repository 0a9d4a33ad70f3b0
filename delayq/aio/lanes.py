"""A run of a consumer of several queues on an event loop: `delayq.lanes`, awaited."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from delayq import outcome as oc
from delayq.aio.crew import Crew
from delayq.aio.loop import Loop
from delayq.aio.message import Message
from delayq.aio.queue import Queue
from delayq.gate import Gate, Lane
from delayq.lanes import LaneTurns, LaneWorkers, with_returned
from delayq.outcome import is_coroutine_function


class Served(NamedTuple):
    """A queue of several, with what is called with its messages."""

    queue: Queue
    weight: int
    handler: Callable[[Message], Any]


class LaneCrew(Crew[Message]):
    """Tasks that begin with a message when it has come through the gate."""

    def __init__(
        self,
        lane: Lane[Message],
        handler: Callable[[Message], Any],
        count: int,
        may_start: Callable[[Message], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        def end() -> None:
            lane.ended()
            on_outcome()

        super().__init__(handler, count, may_start, end)
        self._lane = lane
        self._events = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        lane.start = self._admit

    def room(self, unfinished: int, ahead: bool = True) -> int:  # noqa: ARG002  # the gate knows
        """Return how many messages to claim; `ahead`: also for busy tasks."""
        return self._lane.room(self.times.seconds if ahead else None)

    def submit(self, messages: list[Message]) -> None:
        """Let messages wait at the gate, in their order."""
        self._lane.bring(messages)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._lane.handed_back) or super().has_outcomes

    def outcomes(self) -> list[tuple[Message, oc.Outcome]]:
        """Fetch the outcomes since the last time."""
        return with_returned(self._lane, super().outcomes())

    def unstarted(self) -> list[Message]:
        """Take back what no task has started."""
        waiting = self._lane.withdraw()
        return [*super().unstarted(), *waiting]

    def _admit(self, message: Message) -> None:
        if threading.get_ident() == self._thread:
            super().submit([message])
        else:  # the permit comes from a plain handler of another queue, on its thread
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                self._events.call_soon_threadsafe(super().submit, [message])


class LaneLoop(LaneTurns[Message], Loop):
    """A run on one queue of several, on an event loop."""

    def __init__(self, lane: Lane[Message], served: Served, concurrency: int, name: str) -> None:
        kind = LaneCrew if is_coroutine_function(served.handler) else LaneWorkers
        super().__init__(served.queue, partial(kind, lane, served.handler, concurrency), name)
        self.lane = lane
        lane.wake = self._wake_from_anywhere

    def _wake_from_anywhere(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._events.call_soon_threadsafe(self.wake)


class Lanes:
    """The loops of several queues: to the consumer, they are one.

    Args:
        served: the queues.
        concurrency: handlers at a time, of all queues.
        strict: the order of the queues is their priority.
        most: return after so many messages, or None.
        burst: return when nothing is due in any queue.
    """

    def __init__(
        self, served: Sequence[Served], concurrency: int, strict: bool, name: str, burst: bool, most: int | None
    ) -> None:
        self._events = asyncio.get_running_loop()
        self.gate = Gate(concurrency, [each.weight for each in served], strict, burst, most, self._end)
        self._loops = [
            LaneLoop(lane, each, concurrency, name) for lane, each in zip(self.gate.lanes, served, strict=True)
        ]
        self._cancelled: asyncio.CancelledError | None = None

    @property
    def handled(self) -> int:
        return sum(loop.handled for loop in self._loops)

    @property
    def failed(self) -> int:
        return sum(loop.failed for loop in self._loops)

    @property
    def is_stopping(self) -> bool:
        return self.gate.is_closed

    @property
    def turns_by(self) -> float:
        return min(loop.turns_by for loop in self._loops)

    async def connect(self) -> None:
        """Make sure that the queues can be served.

        Raises:
            ServerError, QueueMismatch
        """
        for loop in self._loops:
            await loop.connect()

    async def run(self, grace: Callable[[], float]) -> int:
        """Turn until stopped; return the number of messages handled.

        Args:
            grace: how many seconds running handlers are given in the end.

        Raises:
            Exception: what has ended the loop of one queue, and the others thereby.
        """
        runs = [asyncio.create_task(loop.run(grace), name="delayq-queue-loop") for loop in self._loops]
        for run in runs:
            run.add_done_callback(lambda _: self.stop())  # one that ends by itself has an error
        await self._ended(runs)
        for result in await asyncio.gather(*runs, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
        if self._cancelled is not None:
            raise self._cancelled
        return self.handled

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task is one of a handler: it must not wait for the loops' end."""
        return any(loop.runs(task) for loop in self._loops)

    def stop(self, at_once: bool = False, hurry: bool = False) -> None:
        """End the run soon.

        Args:
            at_once: leave what runs to its lease.
            hurry: give what runs no more time.
        """
        self.gate.is_closed = True
        for loop in self._loops:
            loop.stop(at_once, hurry)

    async def _ended(self, runs: Sequence[asyncio.Task[int]]) -> None:
        """Wait for the end of all; a cancel hurries them, as with one queue."""
        while not all(run.done() for run in runs):
            try:
                await asyncio.wait(runs)
            except asyncio.CancelledError as error:
                self.stop(at_once=self._cancelled is not None, hurry=True)
                self._cancelled = error

    def _end(self) -> None:
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._events.call_soon_threadsafe(self.stop)
