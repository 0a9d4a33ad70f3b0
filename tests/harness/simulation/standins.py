"""Replacements, on the virtual clock, of what the library waits with: `time`, `threading`, and a loop's wakeup."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, Self

from tests.harness.simulation.fibers import Stage
from tests.harness.simulation.schedule import EPOCH_US, Event


class VirtualTime:
    """Replaces the module `time`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def monotonic(self) -> float:
        return self._stage.schedule.us / 1_000_000

    perf_counter = monotonic

    def clock_gettime(self, _: int) -> float:
        return self.monotonic()

    def time(self) -> float:
        return EPOCH_US / 1_000_000 + self.monotonic()

    def sleep(self, seconds: float) -> None:
        self._stage.fiber.sleep(seconds * 1_000_000)


class Threading:
    """Replaces the module `threading`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def Thread(self, target: Callable[[], None], **_: Any) -> Thread:  # noqa: N802  # the name of what it replaces
        return Thread(self._stage, target)

    def Lock(self) -> Lock:  # noqa: N802
        return Lock(self._stage)

    def get_ident(self) -> int:
        return id(self._stage.fiber)


class Thread:
    """Replaces `threading.Thread`."""

    def __init__(self, stage: Stage, target: Callable[[], None]) -> None:
        self._stage = stage
        self._target = target
        self._runs = Lock(stage)

    def start(self) -> None:
        self._runs.acquire()
        self._stage.fiber.process.spawn(self._run)

    def join(self, timeout: float) -> None:
        if self._runs.acquire(timeout):
            self._runs.release()

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self._runs.release()


class Lock:
    """Replaces `threading.Lock`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._is_locked = False
        self._waiting: deque[Event] = deque()

    def acquire(self, timeout: float = -1) -> bool:
        fiber, schedule = self._stage.fiber, self._stage.schedule
        deadline = schedule.us + timeout * 1_000_000
        while self._is_locked:
            if timeout >= 0 and deadline <= schedule.us:
                return False
            wake = fiber.waker()
            self._waiting.append(wake)
            if timeout >= 0:
                schedule.after(deadline - schedule.us, wake)
            fiber.pause()
        self._is_locked = True
        return True

    def release(self) -> None:
        if not self._is_locked:
            raise RuntimeError("release unlocked lock")
        self._is_locked = False
        while self._waiting:  # all of them try, in an order that the schedule decides; one gets it
            self._stage.schedule.after(0, self._waiting.popleft())

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        self.release()
        return False


class SimpleQueue:
    """Replaces `queue.SimpleQueue`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._items = deque[Any]()
        self._waiting = deque[Event]()

    def put(self, item: Any) -> None:
        self._items.append(item)
        while self._waiting:  # all of them try; one gets it
            self._stage.schedule.after(0, self._waiting.popleft())

    def get(self) -> Any:
        while not self._items:
            fiber = self._stage.fiber
            self._waiting.append(fiber.waker())
            fiber.pause()
        return self._items.popleft()


class Wakeup:
    """Replaces `delayq.transport.self_pipe.SelfPipe`."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.is_set = False
        self.wake: Event | None = None

    def fileno(self) -> Self:
        return self

    def ring(self) -> None:
        self.is_set = True
        if self.wake is not None:
            self._stage.schedule.after(0, self.wake)

    def clear(self) -> bool:
        was, self.is_set = self.is_set, False
        return was

    def close(self) -> None:
        self.is_set = False
