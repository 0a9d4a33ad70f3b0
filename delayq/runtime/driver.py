"""Runs an engine on blocking connections: performs its effects, while a pool runs the handlers."""

from __future__ import annotations

import contextvars
import math
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from delayq.errors import ServerUnreachable
from delayq.runtime import hooks
from delayq.runtime.base_engine import BaseEngine
from delayq.runtime.bells import Bells
from delayq.runtime.consumer_run import EngineRun
from delayq.runtime.effects import (
    Call,
    CloseListeners,
    Sleep,
    StopListening,
    WaitForWork,
)
from delayq.runtime.heartbeat import Heartbeat
from delayq.runtime.process_pool.pool import ProcessPool
from delayq.runtime.thread_pool import ThreadPool
from delayq.transport import trampoline
from delayq.transport.clients import HURRIES, IMPATIENT, impatient
from delayq.transport.executor import Executor
from delayq.transport.self_pipe import SelfPipe


class WakeSignal:
    """Ends the wait of a driver, from any thread and from a signal handler.

    Attributes:
        is_awaited: a driver waits, or is about to.
        woken: the descriptor that becomes readable when the wait should end.
        clear: returns whether the wait was ended, and resets that.
    """

    def __init__(self) -> None:
        self.pipe = SelfPipe()
        self.is_awaited = False
        self.woken, self.clear = self.pipe.fileno(), self.pipe.clear

    def wake(self) -> None:
        """End the wait now, or as soon as it begins."""
        self.pipe.ring()

    def wake_waiting(self) -> None:
        """End the wait if there is one, because of an outcome: a driver at work finds outcomes by itself."""
        if self.is_awaited:
            self.pipe.ring()


def within(seconds: float, call: Callable[[], Any]) -> Any:
    """Call a function on a thread of its own, and wait for it for some seconds.

    Raises:
        ServerUnreachable: it took longer. It is left alone, and ends when the socket's timeout is over.
    """
    results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            results.put((context.run(call), None))
        except BaseException as error:  # noqa: BLE001  # it is raised below
            results.put((None, error))

    try:
        threading.Thread(target=run, name="delayq-last-call", daemon=True).start()
    except RuntimeError:  # Python 3.12.0 and 3.12.1 start no thread in exit handlers
        run()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise ServerUnreachable("the server did not answer before the consumer's end") from None
    if error is not None:
        raise error
    return result


class Driver(EngineRun):
    """One run of an engine.

    Args:
        pool: runs the handlers.
        signal: ends waits.
    """

    def __init__(
        self, engine: BaseEngine[Any], pool: ThreadPool[Any] | ProcessPool[Any], executor: Executor, signal: WakeSignal
    ) -> None:
        super().__init__(engine)
        self._pool = pool
        self._executor = executor
        self._signal = signal
        self._thread: threading.Thread | None = None
        self._bells = Bells(executor)

    def connect(self) -> None:
        """Check that the queue or group can be served.

        Raises:
            ServerError, QueueMismatch, UnknownGroup
        """
        try:
            trampoline.run(self._engine.connect(), self._execute)
            self._executor.client  # noqa: B018  # connects, in case no operation has
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close what `run` would have closed."""
        self._signal.pipe.close()

    def run(self, grace: Callable[[], float]) -> int:
        """Run the engine until it is stopped; return the number of messages handled.

        Args:
            grace: returns how many seconds running handlers get at the end.
        """
        self._thread = threading.current_thread()
        heartbeat = Heartbeat(self._beat, self._engine.heartbeat_seconds)
        heartbeat.start()
        try:
            self._pool.start()
            trampoline.run(self._engine.run(grace), self._perform)
        finally:
            heartbeat.stop()
            self.turns_by = math.inf
            self._engine.pool.unstarted()
            self._pool.stop()
            self._bells.close()
            self.close()
        return self.handled

    def runs_on(self, thread: threading.Thread) -> bool:
        """Whether a thread belongs to this run or its pool, and so must not wait for the run to end."""
        return thread is self._thread or thread in self._pool.threads

    def stop(self, at_once: bool = False, by_signal: bool = False) -> None:
        """End the run soon; may be called from any thread, and from a signal handler."""
        self._engine.shutdown.request(at_once, by_signal)
        self._signal.wake()

    def _perform(self, effect: Any) -> Any:
        self.turns_by, stopping = time.monotonic(), self._engine.shutdown
        match effect:
            case WaitForWork(seconds, _, sources):
                self.turns_by += max(0.0, seconds)
                if sources and not stopping.is_requested:
                    self._bells.listen(sources)
                return self._bells.wait(effect, self._signal, self._engine.pool)
            case Sleep(seconds):
                self.turns_by += seconds
                return time.sleep(seconds)
            case Call():
                return hooks.call(effect)
            case StopListening() | CloseListeners():
                call = partial(self._bells.perform, effect)
            case _:
                call = partial(self._execute, effect)
        return within(stopping.patience(), call) if stopping.is_requested else call()

    def _beat(self) -> None:
        with impatient(self._engine.is_spread):
            trampoline.run(self._engine.renew(), partial(self._executor.perform, repeat=False))

    def _execute(self, effect: Any) -> Any:
        # In a copy of the context, so that an interrupt at any point leaves nothing set for later calls of this thread.
        return contextvars.copy_context().run(self._hurry, effect)

    def _hurry(self, effect: Any) -> Any:
        """Perform an effect; stopping must not wait for a server that is away."""
        stopping = self._engine.shutdown
        HURRIES.set(lambda: stopping.is_requested)  # checked during a call, too: a stop may come meanwhile
        IMPATIENT.set(self._engine.is_spread)
        return self._executor.perform(effect, repeat=not stopping.is_requested)
