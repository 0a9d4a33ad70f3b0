"""Runs an engine on blocking connections: performs its effects, while a pool runs the handlers."""

from __future__ import annotations

import contextvars
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from delayq.errors import ServerUnreachable
from delayq.runtime import hooks
from delayq.runtime.base_engine import BaseEngine
from delayq.runtime.effects import (
    BellSource,
    Call,
    CloseListeners,
    Listen,
    Sleep,
    StopListening,
    StreamSource,
    WaitForWork,
    WakeReason,
)
from delayq.runtime.heartbeat import Heartbeat
from delayq.runtime.process_pool.pool import ProcessPool
from delayq.runtime.thread_pool import ThreadPool
from delayq.transport import listener, trampoline
from delayq.transport.clients import HURRIES, IMPATIENT, impatient
from delayq.transport.executor import Executor
from delayq.transport.self_pipe import SelfPipe

HASTEN_SECONDS = 0.002  # the wait for an outcome before more threads are woken for waiting messages


def done_by(effect: object) -> float:
    """Return when an effect should be done, on the monotonic clock: now, unless it waits."""
    return time.monotonic() + (max(0.0, effect.seconds) if isinstance(effect, WaitForWork | Sleep) else 0.0)


class WakeSignal:
    """Ends the wait of a driver, from any thread and from a signal handler.

    Attributes:
        is_awaited: a driver waits, or is about to.
    """

    def __init__(self) -> None:
        self.pipe = SelfPipe()
        self.is_awaited = False

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

    threading.Thread(target=run, name="delayq-last-call", daemon=True).start()
    try:
        result, error = results.get(timeout=seconds)
    except queue.Empty:
        raise ServerUnreachable("the server did not answer before the consumer's end") from None
    if error is not None:
        raise error
    return result


class Driver:
    """One run of an engine.

    Args:
        pool: runs the handlers.
        signal: ends waits.

    Attributes:
        turns_by: when its current effect should be done, on the monotonic clock; infinite while it does not run.
    """

    def __init__(
        self, engine: BaseEngine[Any], pool: ThreadPool[Any] | ProcessPool[Any], executor: Executor, signal: WakeSignal
    ) -> None:
        self._engine = engine
        self._pool = pool
        self._executor = executor
        self._signal = signal
        self.turns_by = math.inf
        self._thread: threading.Thread | None = None
        self._listeners: list[listener.BellListener] = []

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
            for each in self._listeners:
                each.close()
                self._executor.leave(each.client)
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
        self.turns_by = done_by(effect)
        match effect:
            case WaitForWork():
                return self._wait(effect)
            case Sleep(seconds):
                return time.sleep(seconds)
            case Call():
                return hooks.call(effect)
        if self._engine.shutdown.is_requested:
            return within(self._engine.shutdown.patience(), partial(self._call, effect))
        return self._call(effect)

    def _call(self, effect: Any) -> Any:
        """Perform an effect that talks to the server."""
        match effect:
            case Listen(sources):
                return self._listen(sources)
            case StopListening():
                tokens = [each.stop_listening() for each in self._listeners]  # all, even if the first has a token
                return any(tokens)
            case CloseListeners():
                for each in self._listeners:
                    each.close()
                return None
            case _:
                return self._execute(effect)

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

    def _wait(self, wait: WaitForWork) -> WakeReason:
        signal, pool = self._signal, self._engine.pool
        listeners = self._listeners if wait.listening else ()
        signal.is_awaited = True
        if not pool.has_outcomes:
            behind = pool.is_behind
            seconds = min(wait.seconds, HASTEN_SECONDS) if behind else wait.seconds
            listener.wait(listeners, seconds, signal.pipe.fileno())
            if behind and not pool.has_outcomes:
                pool.hasten()
        signal.is_awaited = False
        disturbed = signal.pipe.clear()
        return WakeReason(disturbed, listener.take_tokens(listeners))

    def _listen(self, sources: Sequence[BellSource | StreamSource]) -> None:
        if len(sources) != len(self._listeners):
            for each in self._listeners:
                each.close()
            self._listeners = [self._listener(source) for source in sources]
        for each, source in zip(self._listeners, sources, strict=True):
            if isinstance(each, listener.StreamListener) and isinstance(source, StreamSource):
                each.seen = source.seen
        listener.listen(self._listeners)

    def _listener(self, source: BellSource | StreamSource) -> listener.BellListener:
        client = self._executor.client
        if isinstance(source, BellSource):
            return listener.BellListener(client, source.key, self._executor.is_away)
        return listener.StreamListener(client, source.stream, source.waking, self._executor.is_away)
