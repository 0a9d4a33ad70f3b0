"""Runs of consumers, as far as both APIs know the same of them; the rest is in `driver` and `multi_queue`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from delayq.runtime.base_engine import BaseEngine
from delayq.runtime.fair_dispatch import FairDispatcher, QueueLane
from delayq.runtime.thread_pool import SharedThreads


class Counts(Protocol):
    """What has become of messages."""

    @property
    def handled(self) -> int: ...
    @property
    def failed(self) -> int: ...
    @property
    def abandoned(self) -> int: ...


class Run(Counts, Protocol):
    """A run of a consumer."""

    @property
    def is_stopping(self) -> bool: ...
    @property
    def turns_by(self) -> float: ...
    def stop(self, at_once: bool = ..., *, by_signal: bool = ...) -> None: ...


class EngineRun:
    """A run of an engine.

    Attributes:
        turns_by: when its current effect should be done, on the monotonic clock; infinite while it does not run.
    """

    turns_by = float("inf")

    def __init__(self, engine: BaseEngine[Any]) -> None:
        self._engine = engine

    @property
    def handled(self) -> int:
        return self._engine.handled

    @property
    def failed(self) -> int:
        return self._engine.failed

    @property
    def abandoned(self) -> int:
        return self._engine.abandoned

    @property
    def is_stopping(self) -> bool:
        return self._engine.shutdown.is_requested


R = TypeVar("R", bound=Run)
S = TypeVar("S")


class QueuesRun(Generic[R, S]):
    """The drivers of several queues, which act as one driver for the consumer.

    Args:
        make_driver: makes the driver of a queue, by its number.
        concurrency: handlers that run at the same time, over all queues.
        weights: of the queues.
        strict: the order of the queues is their priority.
        burst: return when nothing is due in any queue.
        most: return after this many messages; None for no limit.
    """

    def __init__(
        self,
        make_driver: Callable[[int, QueueLane[Any], S], R],
        concurrency: int,
        weights: Sequence[int],
        strict: bool,
        burst: bool,
        most: int | None,
    ) -> None:
        self.dispatcher = FairDispatcher(concurrency, weights, strict, burst, most, self._end)
        lanes, threads = self.dispatcher.lanes, SharedThreads(concurrency)
        for lane in lanes:
            lane.threads = threads
        self._drivers = [make_driver(number, lane, self._waker(lane)) for number, lane in enumerate(lanes)]

    @property
    def handled(self) -> int:
        return sum(driver.handled for driver in self._drivers)

    @property
    def failed(self) -> int:
        return sum(driver.failed for driver in self._drivers)

    @property
    def abandoned(self) -> int:
        return sum(driver.abandoned for driver in self._drivers)

    @property
    def is_stopping(self) -> bool:
        return self.dispatcher.is_closed

    @property
    def turns_by(self) -> float:
        return min(driver.turns_by for driver in self._drivers)

    def _waker(self, lane: QueueLane[Any]) -> S:
        """Return what ends the waits of a lane's driver, and let the lane use it from any thread."""
        raise NotImplementedError

    def _end(self) -> None:
        """End the run soon; called from any thread."""
        raise NotImplementedError
