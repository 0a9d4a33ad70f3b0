"""The threads that run handlers."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from delayq import outcome as oc
from delayq.message import Message


class Workers:
    """Threads that run a handler on messages and keep the outcomes until they are fetched.

    Args:
        handler: is called with a `Message`.
        count: of threads.
        may_start: whether a message's lease still stands.
        on_outcome: is called, on the worker's thread, after each outcome.
    """

    def __init__(
        self,
        handler: Callable[[Message], Any],
        count: int,
        may_start: Callable[[Message], bool],
        on_outcome: Callable[[], None],
    ) -> None:
        self._handler = handler
        self._count = count
        self._may_start = may_start
        self._on_outcome = on_outcome
        self._inbox: SimpleQueue[Message | None] = SimpleQueue()
        self._outcomes: deque[tuple[Message, oc.Outcome]] = deque()
        self.threads: list[threading.Thread] = []
        self.handler_seconds: float | None = None

    def start(self) -> None:
        """Start the threads."""
        for number in range(self._count):
            thread = threading.Thread(target=self._work, name=f"delayq-worker-{number}", daemon=True)
            thread.start()
            self.threads.append(thread)

    def submit(self, messages: list[Message]) -> None:
        """Let the threads run the handler on messages, in their order."""
        for message in messages:
            self._inbox.put(message)

    @property
    def has_outcomes(self) -> bool:
        return bool(self._outcomes)

    def outcomes(self) -> list[tuple[Message, oc.Outcome]]:
        """Fetch the outcomes since the last time."""
        fetched = []
        while self._outcomes:
            fetched.append(self._outcomes.popleft())
        return fetched

    def unstarted(self) -> list[Message]:
        """Take back what no thread has started."""
        taken: list[Message] = []
        while True:
            try:
                message = self._inbox.get_nowait()
            except Empty:
                return taken
            if message is not None:
                taken.append(message)

    def stop(self) -> None:
        """Let the threads end when they have finished what they run."""
        for _ in self.threads:
            self._inbox.put(None)

    def _work(self) -> None:
        while (message := self._inbox.get()) is not None:
            self._outcomes.append((message, self._run(message)))
            self._on_outcome()

    def _run(self, message: Message) -> oc.Outcome:
        if not self._may_start(message):
            return oc.HANDED_BACK
        started = time.perf_counter()
        try:
            outcome = oc.of_return(self._handler(message))
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: a handler must not end its worker
            outcome = oc.of_error(error)
        self._measure(time.perf_counter() - started)
        return outcome

    def _measure(self, seconds: float) -> None:
        known = self.handler_seconds
        self.handler_seconds = seconds if known is None else known + (seconds - known) / 8
