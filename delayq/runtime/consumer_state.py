"""A consumer as it is seen from outside, in both APIs: its name, its settings, and its current run."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from delayq.errors import InvalidInput
from delayq.log import log
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import check_group_name
from delayq.runtime.consumer_run import Run
from delayq.runtime.hooks import Hooks

R = TypeVar("R", bound=Run)


def consumer_name(token: str) -> str:
    """Return the name of a consumer of this process that was not given one."""
    return f"{socket.gethostname()}-{os.getpid()}-{token}"


class ConsumerState(Generic[R]):
    """What consumers have in common.

    Args:
        name: None for host, process and a random part.
        hooks: called at the start and at the end of a run.
    """

    def __init__(self, name: str | None, concurrency: int, shutdown_timeout: Seconds, hooks: Hooks) -> None:
        # A topic's group drops consumers with names of this form that were killed: see `topics.settle.NAMELESS`.
        self.name = consumer_name(secrets.token_hex(3)) if name is None else check_group_name(name, "consumer name")
        self._concurrency = concurrency
        self._hooks = hooks
        self._grace = milliseconds(shutdown_timeout, "shutdown_timeout") / 1000
        self._this_grace: float | None = None  # of `stop`, for the current run
        self._current: R | None = None
        self._retired_at: float | None = None  # when `retire` was called
        self._ends = threading.RLock()  # a signal may come during `retire`, on another thread
        self._handled = self._failed = 0  # in earlier runs
        self.abandoned = 0

    @property
    def handled(self) -> int:
        return self._handled + (self._current.handled if self._current else 0)

    @property
    def failed(self) -> int:
        return self._failed + (self._current.failed if self._current else 0)

    @property
    def is_running(self) -> bool:
        """Whether it is consuming and was not asked to stop."""
        run = self._current
        return run is not None and not run.is_stopping

    @property
    def stalled(self) -> float:
        """How many seconds its run is late with its next step: almost 0 while it works; 0 while it does not run.

        A run whose server is away is not late; a run whose event loop is blocked by a handler is.
        """
        run = self._current
        return 0.0 if run is None else max(0.0, time.monotonic() - run.turns_by)

    def take_signal(self) -> None:
        """Act as on SIGTERM: end `run` soon; the second time at once, leaving messages to their leases.

        In the async API, call it on the event loop's thread. Otherwise, it may be called from any thread, and from a
        signal handler.
        """
        run = self._current
        if run is not None:
            with self._ends:
                is_second = run.is_stopping and not self.is_retiring
                if self._retired_at is not None:
                    self._this_grace, self._retired_at = time.monotonic() - self._retired_at + self._grace, None
            run.stop(at_once=is_second, by_signal=True)

    def retire(self) -> None:
        """End `run` soon, but let running handlers take their time, until `take_signal`; call it as that."""
        run = self._current
        if run is not None:
            with self._ends:
                if run.is_stopping:
                    return
                self._this_grace, self._retired_at = math.inf, time.monotonic()
                run.stop()

    @property
    def is_retiring(self) -> bool:
        """Whether `retire` ends its run, and no signal has come since."""
        return self._retired_at is not None

    @property
    def _labels(self) -> dict[str, str]:
        """The fields of its log lines."""
        raise NotImplementedError

    def _watching(self) -> AbstractContextManager[object]:
        return nullcontext()

    def _check_idle(self) -> None:
        if self._current is not None:
            raise InvalidInput(f"consumer {self.name} is already running: stop it first, or make another one")

    def _note_start(self) -> None:
        log.info("consumer started", **self._labels, concurrency=self._concurrency)

    def _note_end(self, run: R) -> None:
        self._handled, self._failed, self.abandoned = self.handled, self.failed, run.abandoned
        self._current = self._retired_at = None
        log.info("consumer stopped", **self._labels, handled=run.handled)

    def _end(self, run: R, timeout: Seconds | None) -> None:
        """End a run soon; `timeout` is how long running handlers may take, None for the shutdown timeout."""
        self._this_grace = None if timeout is None else milliseconds(timeout, "timeout") / 1000
        run.stop()

    def _seconds_left(self) -> float:
        return self._grace if self._this_grace is None else self._this_grace
