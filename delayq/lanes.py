"""A run of a consumer of several queues: a loop for each, on a thread of its own, and the gate that they share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from delayq import outcome as oc
from delayq.gate import Gate, Lane
from delayq.loop import Loop
from delayq.message import Delivery, Message
from delayq.moves import Moves
from delayq.operations import resting
from delayq.pace import FALLBACK_MS
from delayq.queue import Queue
from delayq.turns import Turns
from delayq.workers import Workers

D = TypeVar("D", bound=Delivery)


class Served(NamedTuple):
    """A queue of several, with what is called with its messages."""

    queue: Queue
    weight: int
    handler: Callable[[Message], Any]


class LaneTurns(Turns[D]):
    """The state of a run on one queue of several."""

    lane: Lane[D]

    @property
    def _is_burst(self) -> bool:
        return self.lane.is_burst

    def _exchange(self, limit: int | None) -> Moves[int]:
        handled, keyless, settled = self.handled, self._keyless, bool(self._unsettled)
        claimed, failed = 0, True
        try:
            claimed = yield from super()._exchange(limit)
            failed = False
        finally:
            self.lane.answered(claimed, self.handled - handled, settled, failed, self._keyless - keyless)
        return claimed

    def _sleep(self, sleep: resting.Sleep, has_room: bool) -> Moves[None]:
        if has_room and not (self._leases.held() or self._held):
            self.lane.rests()
        yield from super()._sleep(sleep, has_room)


class LaneWorkers(Workers[D]):
    """Threads that begin with a message when it has come through the gate."""

    def __init__(
        self,
        lane: Lane[D],
        handler: Callable[[D], Any],
        count: int,
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        def end() -> None:
            lane.ended()
            on_outcome()

        super().__init__(handler, count, may_start, end)
        self._lane = lane
        lane.start = lambda message: super(LaneWorkers, self).submit([message])

    def room(self, unfinished: int, ahead: bool = True) -> int:  # noqa: ARG002  # the gate knows
        """Return how many messages to claim; `ahead`: also for busy threads."""
        return self._lane.room(self.times.seconds if ahead else None)

    def submit(self, messages: list[D]) -> None:
        """Let messages wait at the gate, in their order."""
        self._lane.bring(messages)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._lane.handed_back) or super().has_outcomes

    def outcomes(self) -> list[tuple[D, oc.Outcome]]:
        """Fetch the outcomes since the last time."""
        return with_returned(self._lane, super().outcomes())

    def unstarted(self) -> list[D]:
        """Take back what no thread has started."""
        waiting = self._lane.withdraw()
        return [*super().unstarted(), *waiting]


def with_returned(lane: Lane[D], outcomes: list[tuple[D, oc.Outcome]]) -> list[tuple[D, oc.Outcome]]:
    """Return outcomes, and those of the messages that the gate hands back."""
    unstarted = sum(isinstance(outcome, oc.HandedBack) for _, outcome in outcomes)
    return [*outcomes, *((message, oc.HANDED_BACK) for message in lane.returned(unstarted))]


class LaneLoop(LaneTurns[Message], Loop):
    """A run on one queue of several, on blocking connections."""

    def __init__(self, lane: Lane[Message], served: Served, concurrency: int, name: str) -> None:
        super().__init__(served.queue, partial(LaneWorkers, lane, served.handler, concurrency), name)
        self.lane = lane
        lane.wake = self._wakeup.ring
        self.error: BaseException | None = None

    def close(self) -> None:
        """Give up what `run` would have closed."""
        self._wakeup.close()


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
        self.gate = Gate(concurrency, [each.weight for each in served], strict, burst, most, self.stop)
        self._loops = [
            LaneLoop(lane, each, concurrency, name) for lane, each in zip(self.gate.lanes, served, strict=True)
        ]
        self._caller: threading.Thread | None = None
        self._threads: list[threading.Thread] = []

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

    def connect(self) -> None:
        """Make sure that the queues can be served.

        Raises:
            ServerError, QueueMismatch
        """
        for number, loop in enumerate(self._loops):
            try:
                loop.connect()
            except BaseException:  # that one is closed already
                for other in (*self._loops[:number], *self._loops[number + 1 :]):
                    other.close()
                raise

    def run(self, grace: Callable[[], float]) -> int:
        """Turn until stopped; return the number of messages handled.

        Args:
            grace: how many seconds running handlers are given in the end.

        Raises:
            Exception: what has ended the loop of one queue, and the others thereby.
        """
        self._caller = threading.current_thread()
        for loop in self._loops:
            work = threading.Thread(target=self._run, args=(loop, grace), name="delayq-consumer-queue", daemon=True)
            work.start()
            self._threads.append(work)
        for work in self._threads:
            while work.is_alive():  # a signal that came to another thread is heard when this one wakes
                work.join(FALLBACK_MS / 1000)
        for loop in self._loops:
            if loop.error is not None:
                raise loop.error
        return self.handled

    def runs_on(self, thread: threading.Thread) -> bool:
        """Whether a thread is one of these loops' or workers': it must not wait for their end."""
        return thread is self._caller or any(loop.runs_on(thread) for loop in self._loops)

    def stop(self, at_once: bool = False) -> None:
        """End the run soon; may be called from any thread, and from a signal handler."""
        self.gate.is_closed = True
        for loop in self._loops:
            loop.stop(at_once)

    def _run(self, loop: LaneLoop, grace: Callable[[], float]) -> None:
        try:
            loop.run(grace)
        except BaseException as error:  # noqa: BLE001  # it is for whoever has called run
            loop.error = error
            self.stop()
