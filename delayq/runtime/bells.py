# Made from delayq/runtime/bells_async.py by `make faces`: change that file.
"""The bells of a queue's shards, or the streams of a topic's, on which an idle consumer, receiver or reader listens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from delayq.errors import ServerError
from delayq.runtime.effects import CloseListeners, StopListening, WaitForWork, WakeReason
from delayq.runtime.handler_pool import HandlerPool
from delayq.transport import listener
from delayq.transport.bell_source import Source
from delayq.transport.executor import Client, Executor

HASTEN_SECONDS = 0.002  # the wait for an outcome before more threads are woken for waiting messages


class Signal(Protocol):
    """Ends a wait; see `WakeSignal`."""

    is_awaited: bool
    woken: Any

    def clear(self) -> bool: ...


class Bells:
    """Blocked connections, one for each source; made again for another client or number of sources.

    Attributes:
        listeners: what `listener.wait` waits on.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._client: Client | None = None
        self.listeners: list[listener.BellListener] = []

    def perform(self, effect: StopListening | CloseListeners) -> Any:
        """Do what an engine asks for; return its answer."""
        match effect:
            case StopListening():
                return self.stop()
            case CloseListeners():
                return self.close()

    def listen(self, sources: Sequence[Source]) -> None:
        """Start listening; a source that cannot be listened on is tried again the next time, and polls make up for it.

        Raises:
            ServerError: none of the sources can.
        """
        client = self._executor.connected()
        if client is not self._client or len(self.listeners) != len(sources):
            self.close()
            self._client, known = client, (self._executor.is_away, self._executor.lose)
            self.listeners = [listener.BellListener(client, source, *known) for source in sources]
        errors = []
        for each, source in zip(self.listeners, sources, strict=True):
            each.source = source
            try:
                each.listen()
            except ServerError as error:
                errors.append(error)
        if errors and len(errors) == len(sources):
            raise errors[0]

    def wait(self, wait: WaitForWork, signal: Signal, pool: HandlerPool[Any]) -> WakeReason:
        """Return when a driver has something to do, after the time that an engine asks for at the latest."""
        listeners = self.listeners if wait.listening else ()
        signal.is_awaited = True
        if not pool.has_outcomes:
            behind = pool.is_behind
            seconds = min(wait.seconds, HASTEN_SECONDS) if behind else wait.seconds
            listener.wait(listeners, seconds, signal.woken, wait.is_exact)
            if behind and not pool.has_outcomes:
                pool.hasten()
        signal.is_awaited = False
        disturbed = signal.clear()
        return WakeReason(disturbed, self.take_tokens() if wait.listening else False)

    def take_tokens(self) -> bool:
        """Take the tokens that have come; return whether there are any, or a bell may have lost its token.

        Raises:
            ServerError: as for `listen`.
        """
        tokens, errors = [], []
        for each in self.listeners:
            try:
                tokens.append(each.take_token())
            except ServerError as error:
                errors.append(error)
        if errors and len(errors) == len(self.listeners):
            raise errors[0]
        return any(tokens) or bool(errors)

    def stop(self) -> bool:
        """Stop listening; return whether a token came meanwhile, which must be used or passed on."""
        tokens = [each.stop_listening() for each in self.listeners]  # all, even if the first has a token
        if self._client is not None:
            self._executor.leave(self._client)
        return any(tokens)

    def interrupt(self) -> None:
        """End a wait at once."""
        for each in self.listeners:
            each.interrupt()

    def close(self) -> None:
        """Close the blocked connections."""
        any_open = bool(self.listeners)
        while self.listeners:
            self.listeners[-1].close()  # if this is cancelled, the next call closes the rest
            self.listeners.pop()
        if any_open and self._client is not None:  # which may have been closed before they were opened
            self._executor.leave(self._client)
