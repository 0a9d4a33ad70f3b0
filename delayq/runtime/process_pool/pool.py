"""The processes that run handlers, each managed by a thread."""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from delayq.errors import InvalidInput
from delayq.log import log
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.histogram import HandlerTimes
from delayq.runtime import prefetch
from delayq.runtime.process_pool.handle import (
    CannotStart,
    ProcessDied,
    Request,
    TookTooLong,
    WorkerProcess,
    check_program,
)
from delayq.runtime.process_pool.job import ProcessJob
from delayq.runtime.process_pool.slot import Slot
from delayq.runtime.recycling import Recycling, resident_bytes
from delayq.runtime.time_limit import TimeLimit

D = TypeVar("D", bound=Delivery)

FIRST_WAIT, LONGEST_WAIT = 0.2, 10.0  # seconds before another try to start a process
LOOK_SECONDS = 0.1  # while a process starts, between two checks whether it is still needed
START_SECONDS = 60.0  # for a successor: one that hangs would hold up all other renewals


_POOLS: WeakSet[ProcessPool[Any]] = WeakSet()


@atexit.register  # runs after the `stop` that `Consumer.start` registers later, and before multiprocessing's own
def _kill_all() -> None:
    """Kill the processes of consumers that still run, so that this process can end."""
    for pool in list(_POOLS):
        pool.kill()


class ProcessPool(Generic[D]):
    """Processes that run a handler on messages, and threads that pass them messages and keep the outcomes.

    If a process dies, or its handler exceeds the time limit, only the delivery that it runs fails; another process is
    started in its place. A process that has reached a limit of `recycling` keeps handling messages until its
    successor is ready.

    Args:
        job: the handler and what it needs.
        count: the number of processes.
        recycling: when a process is replaced by a new one.
        time_limit: how long a handler may run, and how many have run longer.
        ask: called, on any thread, with what a handler asks for its message.
        may_start: whether a message's lease is still valid.
        on_outcome: called, on any thread, after each outcome, and when there is room for more.

    Attributes:
        count: the number of processes.
        times: how long handlers have run, including those that were killed or died.

    Raises:
        InvalidInput: this is itself a pool process that is still importing the program.
    """

    is_behind = False  # a waiting message goes to the first free process

    def __init__(
        self,
        job: ProcessJob,
        count: int,
        recycling: Recycling,
        time_limit: TimeLimit,
        ask: Callable[[Request, Any, Any], object],
        may_start: Callable[[D], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        check_program()
        self._job = job
        self.count = count
        self._recycling = recycling
        self._time_limit = time_limit
        self._ask = ask
        self._may_start = may_start
        self._on_outcome = on_outcome
        self._inbox: queue.SimpleQueue[D | None] = queue.SimpleQueue()
        self._outcomes: deque[tuple[D, oc.Outcome]] = deque()
        self._lock = threading.Lock()
        self._renewing = threading.Lock()  # successors start one after the other, so that handlers keep their cores
        self._ready: set[Slot] = set()
        self._running: dict[WorkerProcess, D] = {}
        self._alive: set[WorkerProcess] = set()
        self._over = threading.Event()
        self._has_begun = self._is_interrupted = self._has_news = False
        self._trouble: InvalidInput | None = None
        self._failed: set[int] = set()  # threads that could not start a process, before any was ready
        self.threads: list[threading.Thread] = []
        self.times = HandlerTimes()

    def start(self) -> None:
        """Start the processes; there is no room until the first is ready."""
        _POOLS.add(self)
        for number in range(self.count):
            thread = threading.Thread(target=self._work, name=f"delayq-process-{number}", daemon=True)
            thread.start()
            self.threads.append(thread)

    def room(self, unfinished: int, ahead: bool = True) -> int:
        """Return how many messages to claim beyond those that the processes have; `ahead`: also for busy ones.

        Raises:
            InvalidInput: no process could be started with this handler.
        """
        if self._trouble is not None:
            raise self._trouble
        seconds = self.times.seconds if ahead else None
        return prefetch.prefetch_limit(ready, unfinished, seconds) if (ready := len(self._ready)) else 0

    def submit(self, messages: list[D]) -> None:
        """Let the processes run the handler on messages, in order."""
        for message in messages:
            self._inbox.put(message)

    def adapt(self) -> None:
        """Do nothing: all processes are awake."""

    def hasten(self) -> None:
        """Do nothing, for the same reason."""

    @property
    def has_outcomes(self) -> bool:
        return self._has_news or bool(self._outcomes)

    def outcomes(self) -> list[tuple[D, oc.Outcome]]:
        """Fetch the outcomes since the last call."""
        self._has_news = False
        fetched = []
        while self._outcomes:
            fetched.append(self._outcomes.popleft())
        return fetched

    def unstarted(self) -> list[D]:
        """Take back the messages that no process has started."""
        taken: list[D] = []
        while True:
            try:
                message = self._inbox.get_nowait()
            except queue.Empty:
                return taken
            if message is None:  # it tells a thread to end
                self._inbox.put(None)
                return taken
            taken.append(message)

    def cancel(self, message: D) -> None:
        """End the process whose handler runs on a message; another process takes its place."""
        with self._lock:  # held from the start of a message to its end: the process cannot have begun the next one
            for process, handled in self._running.items():
                if handled is message:
                    process.stop()

    def interrupt(self) -> bool:
        """Kill the processes whose handlers are running; return whether there are any."""
        with self._lock:
            self._is_interrupted = True
            running = list(self._running)
            for process in running:
                process.kill()
        return bool(running)

    def stop(self) -> None:
        """End all processes, killing those whose handlers are running, and wait for them."""
        self._over.set()
        self.interrupt()
        for _ in self.threads:
            self._inbox.put(None)
        for thread in self.threads:
            thread.join()

    def kill(self) -> None:
        """Kill all processes now."""
        self._over.set()
        with self._lock:
            for process in self._alive:
                process.kill()

    def _work(self) -> None:
        wait, times = FIRST_WAIT, self.times.own()
        while not self._over.is_set():
            try:
                process = self._started()
                if process is None:
                    return
                wait = FIRST_WAIT
                self._serve(Slot(process, self._recycling), times)
            except (CannotStart, OSError) as error:
                self._tell(error, wait)
                self._over.wait(wait)
                wait = min(LONGEST_WAIT, wait * 2)
            except BaseException as error:  # noqa: BLE001  # any error: without this thread, the run would never end
                self._end_run(oc.error_text(error), error)
                return

    def _started(self, slot: Slot | None = None) -> WorkerProcess | None:
        """Return a new process that is ready; None if the pool or the slot has ended.

        A successor and the first processes are refused if they have too much memory from the start: they would be
        replaced again and again.

        Args:
            slot: of the process that it is to replace; None for a process that replaces none.

        Raises:
            CannotStart, OSError
        """
        is_checked = slot is not None or not self._has_begun
        started = time.monotonic()
        process, is_ready = WorkerProcess(self._job, self._ask), False
        with self._lock:
            self._alive.add(process)
        try:
            while not process.is_ready(LOOK_SECONDS):
                if self._over.is_set() or (slot is not None and not slot.is_open):
                    process.kill()
                    return None
                if slot is not None and time.monotonic() - started >= (seconds := START_SECONDS):
                    process.kill()
                    raise CannotStart(f"it was not ready after {seconds:g} s, and was killed")
            if is_checked and (refusal := self._recycling.refusal(resident_bytes(process.pid))):
                raise CannotStart(refusal)
            is_ready = True
            return process
        finally:
            if not is_ready:
                self._end(process)

    def _end(self, process: WorkerProcess) -> None:
        process.end()
        with self._lock:
            self._alive.discard(process)

    def _serve(self, slot: Slot, times: list[int]) -> None:
        """Pass messages to the process of a slot and its successors, for as long as they live."""
        renewal = f"{threading.current_thread().name}-renewal"
        try:
            self._note_ready(slot)
            while (message := self._inbox.get()) is not None:
                process = slot.begin()
                if slot.is_worn:
                    slot.renew(self._renew, renewal)
                outcome, lives = self._run(process, message, times)
                if not lives:
                    self._ready.discard(slot)
                self._outcomes.append((message, outcome))
                self._on_outcome()
                slot.end()
                if not lives:
                    if not slot.is_replaced(process):
                        break
                    self._note_ready(slot)
                elif slot.is_large:
                    slot.renew(self._renew, renewal)
        finally:
            self._ready.discard(slot)
            slot.close()
            self._end(slot.process)

    def _note_ready(self, slot: Slot) -> None:
        self._ready.add(slot)
        self._has_begun = self._has_news = True
        self._on_outcome()

    def _renew(self, slot: Slot) -> None:
        """Start a successor, let it take over, and end the process that it replaces."""
        wait, left = FIRST_WAIT, None
        while left is None and slot.is_open and not self._over.is_set():
            if not self._renewing.acquire(timeout=LOOK_SECONDS):
                continue
            try:
                successor = self._started(slot)
            except Exception as error:  # noqa: BLE001  # any error: the process stays
                log.error("pool process not started, retrying", error=str(error), wait=wait)
                successor = None
            finally:
                self._renewing.release()
            if successor is not None and (left := slot.offer(successor)) is successor:
                self._end(successor)
                left = None
            if left is None:
                slot.pause(wait)
                wait = min(LONGEST_WAIT, wait * 2)
        slot.renewed()
        if left is not None:
            self._end(left)

    def _run(self, process: WorkerProcess, message: D, times: list[int]) -> tuple[oc.Outcome, bool]:
        """Return the outcome of a message, and whether the process is still alive."""
        with self._lock:
            if self._is_interrupted or not self._may_start(message):
                return oc.RELEASED, True
            self._running[process] = message
        started, has_run = time.perf_counter(), True
        seconds = self._time_limit.of(message)
        try:
            outcome = process.run(message, seconds)
        except CannotStart as error:
            has_run = False
            log.warning("pool process died, restarting", how=str(error), pid=process.pid)
            return oc.RELEASED, False
        except ProcessDied as error:
            return oc.INTERRUPTED if self._is_interrupted else oc.Failed(error=f"ProcessDied: {error}"), False
        except TookTooLong:
            process.kill()
            with self._lock:
                self._time_limit.count += 1
            text = f"TimeoutError: the handler took longer than {seconds:g} s: its process was killed"
            return oc.Failed(error=text), False
        finally:
            with self._lock:
                self._running.pop(process, None)
            if has_run:
                self.times.note(time.perf_counter() - started, times)
        return outcome, not process.is_stopped

    def _tell(self, error: Exception, wait: float) -> None:
        """Log that a process could not be started; end the consumer if none ever could."""
        if self._has_begun:
            log.error("pool process not started, retrying", error=str(error), wait=wait)
            if not self._ready:  # processes of other threads may still start
                self._outcomes.extend((message, oc.RELEASED) for message in self.unstarted())
        else:
            self._failed.add(threading.get_ident())
            if len(self._failed) == self.count:
                self._end_run(str(error), error.__cause__)
        self._has_news = True
        self._on_outcome()

    def _end_run(self, text: str, cause: BaseException | None) -> None:
        """Let the consumer end with an error, when it next asks for room."""
        self._trouble = InvalidInput(f"the handler cannot be run in a process: {text}")
        self._trouble.__cause__ = cause
        self._has_news = True
        self._on_outcome()
