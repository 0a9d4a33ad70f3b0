"""What makes the moves of a consumer's run on an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any, TypeVar

from delayq.aio import bell
from delayq.aio.connection import Connection
from delayq.aio.crew import Crew
from delayq.calls import Steps
from delayq.clients import HURRIES
from delayq.errors import ServerUnreachable
from delayq.mover import HASTEN_SECONDS
from delayq.moves import Move, Moves, Pause, Rest, Ring, Woken, done_by
from delayq.processes import Processes
from delayq.workers import Workers

T = TypeVar("T")


class Mover:
    """The state of a run as far as it is I/O; what it decides is said by a class beside it, such as `Turns`.

    Args:
        connection: to the server.
        workers: that run the handlers.

    Attributes:
        turns_by: on the monotonic clock, when its present move should be done; infinite while it does not run.
    """

    _workers: Crew[Any] | Workers[Any] | Processes[Any]
    handled: int
    _stopping: bool
    _at_once: bool
    _deadline: float
    _consume: Callable[[Callable[[], float]], Moves[None]]

    def __init__(self, connection: Connection, workers: Crew[Any] | Workers[Any] | Processes[Any]) -> None:
        self._connection = connection
        self._workers = workers
        self._events = asyncio.get_running_loop()
        self.turns_by = math.inf
        self._sleeping = self._is_hurried = False
        self._cancelled: asyncio.CancelledError | None = None
        self._bells: list[Any] = []  # Bell, or StreamBell
        self._woken: asyncio.Future[None] = self._events.create_future()

    async def run(self, grace: Callable[[], float]) -> int:
        """Turn until stopped; return the number of messages handled.

        A task that is cancelled within it, as all are when an event loop ends, still brings the run to a good end.

        Args:
            grace: how many seconds running handlers are given in the end.
        """
        try:
            self._workers.start()
            await self._make(self._consume(lambda: 0.0 if self._is_hurried else grace()))
        finally:
            self.turns_by = math.inf
            self._workers.unstarted()
            if isinstance(self._workers, Crew):
                await self._workers.stop()
            elif isinstance(self._workers, Processes):
                await asyncio.to_thread(self._workers.stop)  # which waits for them
            else:
                self._workers.stop()
            for each in self._bells:
                await each.close()
                await self._connection.leave(each.client)
        if self._cancelled is not None:
            raise self._cancelled
        return self.handled

    def runs(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether a task is one of a handler: it must not wait for the loop's end."""
        return isinstance(self._workers, Crew) and self._workers.runs(task)

    def stop(self, at_once: bool = False, hurry: bool = False) -> None:
        """End the run soon.

        Args:
            at_once: leave what runs to its lease.
            hurry: give what runs no more time.
        """
        self._stopping = True
        self._at_once = self._at_once or at_once
        if hurry:
            self._is_hurried, self._deadline = True, 0.0
        self.wake()

    def wake(self) -> None:
        """End a rest, now or when it begins."""
        if not self._woken.done():
            self._woken.set_result(None)

    async def _do(self, steps: Steps[T]) -> T:
        # At the end, whoever waits for this consumer is not made to wait for a server that is away.
        token = HURRIES.set(lambda: self._stopping)  # also for a call that is out when it is told to stop
        try:
            return await self._connection.do(steps, repeat=not self._stopping)
        finally:
            HURRIES.reset(token)

    async def _make(self, moves: Moves[None]) -> None:
        """Make one move after the other; what goes wrong is the run's to handle."""
        try:
            move = next(moves)
            while True:
                self.turns_by = done_by(move)
                try:
                    answer = await self._answer(move)
                except asyncio.CancelledError as error:
                    self.stop(at_once=self._cancelled is not None, hurry=True)
                    self._cancelled = error
                    move = moves.throw(ServerUnreachable("the consumer was cancelled"))
                except BaseException as error:  # noqa: BLE001
                    move = moves.throw(error)
                else:
                    move = moves.send(answer)
        except StopIteration:
            return

    async def _answer(self, move: Move) -> Any:
        match move:
            case Rest():
                return await self._rest(move)
            case Ring():
                return await self._ring(move)
            case Pause(seconds):
                await asyncio.sleep(0 if self._is_hurried else seconds)
                return None
            case _:
                return await self._do(move)

    async def _rest(self, rest: Rest) -> Woken:
        bells = self._bells if rest.bells else ()
        self._sleeping = True
        if not self._workers.has_outcomes:
            behind = self._workers.is_behind
            await bell.wait(bells, min(rest.seconds, HASTEN_SECONDS) if behind else rest.seconds, self._woken)
            if behind and not self._workers.has_outcomes:
                self._workers.hasten()
        self._sleeping = False
        disturbed = self._woken.done()
        if disturbed:
            self._woken = self._events.create_future()
        rang = [await each.rang() for each in bells]
        return Woken(disturbed, any(rang))

    async def _ring(self, ring: Ring) -> bool:
        rang = [await getattr(each, ring.verb)() for each in self._bells]
        return any(rang)

    def _nudge(self) -> None:
        """Wake the loop, also from a thread of a handler."""
        if self._sleeping:
            self._sleeping = False  # once is enough
            with contextlib.suppress(RuntimeError):  # the event loop is closed: nobody waits for this outcome
                self._events.call_soon_threadsafe(self.wake)
