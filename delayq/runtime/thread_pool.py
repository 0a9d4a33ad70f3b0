"""The threads that run handlers: of a consumer of one queue, or shared by the queues of a consumer of several."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from delayq.model import outcome as oc
from delayq.model.delivery import running
from delayq.model.histogram import HandlerTimes
from delayq.runtime import fork_guard, prefetch

D = TypeVar("D")  # a message of either face, or a record

# One thread runs quick handlers one after the other: waking another one would cost more than the handlers.
ALONE_SECONDS = 0.0005


class ThreadPool(Generic[D]):
    """Threads that run a handler on messages and keep the outcomes until they are fetched.

    Only as many are awake as the handler's measured time requires; `hasten` wakes the others if handlers take longer.

    Args:
        choose: returns the function to call with a message.
        count: the number of threads.
        may_start: whether a message's lease is still valid.
        on_outcome: called, on the worker's thread, after each outcome.

    Attributes:
        count: the number of threads.
        times: how long handlers have run.
    """

    def __init__(
        self,
        choose: Callable[[D], Callable[[D], Any]],
        count: int,
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        self._choose = choose
        self.count = count
        self._may_start = may_start
        self._on_outcome = on_outcome
        self._inbox: deque[D] = deque()
        self._parked: list[threading.Lock] = []  # of sleeping threads; the last to fall asleep wakes first
        self._stopped = False
        self._outcomes: deque[tuple[D, oc.Outcome]] = deque()
        self.threads: list[threading.Thread] = []
        self.times = HandlerTimes()

    def start(self) -> None:
        """Start the threads."""
        for number in range(self.count):
            thread = threading.Thread(target=self._work, name=f"delayq-worker-{number}", daemon=True)
            thread.start()
            self.threads.append(thread)

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beyond those that the threads have; `ahead`: also for busy threads."""
        return prefetch.prefetch_limit(self.count, unfinished, self.times.seconds if ahead else None)

    def submit(self, messages: list[D]) -> None:
        """Let the threads run the handler on messages, in order."""
        self._inbox.extend(messages)
        self._wake(1)
        self.adapt()

    def submit_one(self, message: D) -> None:
        """Let a thread run the handler on a message."""
        self.submit([message])

    def adapt(self) -> None:
        """Wake as many threads as the handler's measured time requires."""
        count, seconds = len(self._inbox), self.times.seconds
        self._wake(count if seconds is None else min(count, int(count * seconds / ALONE_SECONDS)))

    @property
    def is_behind(self) -> bool:
        """Whether messages wait although threads sleep."""
        return bool(self._inbox and self._parked)

    def hasten(self) -> None:
        """Wake a thread for every waiting message, because the others take longer than expected."""
        self._wake(len(self._inbox))

    def _wake(self, most: int) -> None:
        for _ in range(most):
            try:
                self._parked.pop().release()
            except IndexError:
                return

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    def outcomes(self) -> list[tuple[D, oc.Outcome]]:
        """Fetch the outcomes since the last call."""
        fetched = []
        while self._outcomes:
            fetched.append(self._outcomes.popleft())
        return fetched

    def unstarted(self) -> list[D]:
        """Take back the messages that no thread has started."""
        taken: list[D] = []
        while True:
            try:
                taken.append(self._inbox.popleft())
            except IndexError:
                return taken

    def cancel(self, message: D) -> None:
        """Do nothing, for the same reason as `interrupt`: the handler has to look at `Message.cancelled`."""

    def interrupt(self) -> bool:
        """Return False: running threads cannot be interrupted."""
        return False

    def stop(self) -> None:
        """Let the threads end once their handlers have finished."""
        self._stopped = True
        self._wake(self.count)

    def _work(self) -> None:
        parking = threading.Lock()
        parking.acquire()
        times = self.times.own()
        while not self._stopped:
            try:
                message = self._inbox.popleft()
            except IndexError:
                self._parked.append(parking)
                # A sender adds to the inbox first, and then looks for parked threads: one of the two sees the other.
                if (self._inbox or self._stopped) and self._unparked(parking):
                    continue
                parking.acquire()
                continue
            self._outcomes.append((message, self._run(message, times)))
            del message  # otherwise an idle thread would keep it
            self._on_outcome()

    def _unparked(self, parking: threading.Lock) -> bool:
        """Stay awake; return False if another thread has already taken the lock to wake this one."""
        try:
            self._parked.remove(parking)
        except ValueError:
            return False
        return True

    def _run(self, message: D, times: list[int]) -> oc.Outcome:
        if not self._may_start(message):
            return oc.RELEASED
        before, started, outside = fork_guard.forks, time.perf_counter(), running.set(message)
        try:
            returned = self._choose(message)(message)
            if fork_guard.forks != before:
                fork_guard.end_fork()
            outcome = oc.DONE if returned is None else oc.of_return(returned)
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: a handler must not end its worker
            if fork_guard.forks != before:
                fork_guard.end_fork(error)
            outcome = oc.of_error(error, message)
        running.reset(outside)
        self.times.note(time.perf_counter() - started, times)
        return outcome


class SharedThreads:
    """The threads of a consumer of several queues: as many as it runs handlers at the same time.

    Args:
        count: of the threads.
    """

    def __init__(self, count: int) -> None:
        self.threads: list[threading.Thread] = []
        self._count = count
        self._pools: SimpleQueue[LanePool[Any] | None] = SimpleQueue()  # one entry for each message; None ends a thread
        self._users = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the threads, if this is the first queue to use them."""
        with self._lock:
            self._users += 1
            for number in range(len(self.threads), self._count):
                thread = threading.Thread(target=self._work, name=f"delayq-worker-{number}", daemon=True)
                thread.start()
                self.threads.append(thread)

    def stop(self) -> None:
        """Let the threads end once their handlers have finished, if this is the last queue to use them."""
        with self._lock:
            self._users -= 1
            for _ in self.threads if not self._users else ():
                self._pools.put(None)

    def run_one_of(self, pool: LanePool[Any]) -> None:
        """Let a thread run the next message of a pool."""
        self._pools.put(pool)

    def _work(self) -> None:
        times: dict[LanePool[Any], list[int]] = {}
        while (pool := self._pools.get()) is not None:
            if pool not in times:
                times[pool] = pool.times.own()
            pool.run_next(times[pool])
            del pool  # otherwise an idle thread would keep it


class LanePool(ThreadPool[D]):
    """The handlers of one queue of several, on the threads that the queues share.

    It is given no more messages than there are threads: see `FairDispatcher`.
    """

    def __init__(
        self,
        shared: SharedThreads,
        choose: Callable[[D], Callable[[D], Any]],
        count: int,
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        super().__init__(choose, count, may_start, on_outcome)
        self._shared = shared
        self.threads = shared.threads

    def start(self) -> None:
        """Start the threads, unless another queue has."""
        self._shared.start()

    def submit(self, messages: list[D]) -> None:
        """Let the threads run the handler on messages, in order."""
        self._inbox.extend(messages)
        for _ in messages:
            self._shared.run_one_of(self)

    def stop(self) -> None:
        """Let the threads end once the last queue has stopped, and their handlers have finished."""
        self._shared.stop()

    def run_next(self, times: list[int]) -> None:
        """Run the next message, on the calling thread, unless it was taken back."""
        try:
            message = self._inbox.popleft()
        except IndexError:
            return
        self._outcomes.append((message, self._run(message, times)))
        del message
        self._on_outcome()
