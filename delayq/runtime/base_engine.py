"""What the consumers of queues and of topics have in common: a run, from its first turn to its end.

A run takes turns until it is stopped or a turn fails with an error that does not pass. Then it takes nothing new, waits
for running handlers, interrupts those that do not end in time, and settles what is done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from delayq.errors import LoginRefused, ServerError, StoreError
from delayq.log import log
from delayq.model.interval import FALLBACK_MS
from delayq.model.outage import Outage
from delayq.model.outcome import error_text
from delayq.operations.record_copies import RecordedContext
from delayq.runtime.effects import CloseListeners, Effects, Sleep, WaitForWork
from delayq.runtime.handler_pool import HandlerPool
from delayq.runtime.refused_outcomes import Pairs
from delayq.runtime.shutdown import INTERRUPTED_SECONDS, Shutdown
from delayq.runtime.unsettled_outcomes import UnsettledOutcomes

D = TypeVar("D")  # a message of either face, or a record


class Leases(Protocol):
    """The leases of what a run holds."""

    heartbeat_seconds: float


class BaseEngine(Generic[D]):
    """One run of a consumer, as decisions without I/O; see `ConsumerEngine` and `TopicEngine`.

    Args:
        leases: of the messages or records that it is handed.
        pool: runs the handlers.
        unsettled: keeps their outcomes.
        most: return after this many deliveries; None for no limit.
        labels: fields of the log lines: the queue or topic.

    Attributes:
        handled: deliveries whose handling has ended.
        failed: of these, those that did not end in an ack.
        abandoned: deliveries left to their leases because the run had to end at once.
        unfinished: those with the pool.
    """

    def __init__(
        self,
        context: RecordedContext[Any],
        leases: Leases,
        pool: HandlerPool[D],
        unsettled: UnsettledOutcomes[D],
        most: int | None,
        **labels: Any,
    ) -> None:
        self.handled = self.failed = self.abandoned = self.unfinished = 0
        self.pool = pool
        self.outage = Outage(**labels)
        self.shutdown = Shutdown()
        self._context = context
        self._leases = leases
        self._unsettled = unsettled
        self._most = most
        self._log = log.bind(**labels)

    # -- what queues and topics do differently -----------------------------------------------------------------------

    @property
    def is_burst(self) -> bool:
        """Whether the run ends when nothing is due."""
        raise NotImplementedError

    def connect(self) -> Effects[None]:
        """Check that the queue or group can be served."""
        raise NotImplementedError

    def renew(self) -> Effects[None]:
        """Renew the leases, on a separate thread or task, so that nothing delays it."""
        raise NotImplementedError

    def report(self) -> Effects[None]:
        """Report that this consumer lives, while it only waits for its handlers to end."""
        raise NotImplementedError

    def settle(self) -> Effects[None]:
        """Settle outcomes, and take nothing."""
        raise NotImplementedError

    def on_outage(self) -> None:
        """Prepare the first step after a failed one."""
        raise NotImplementedError

    def _turn(self) -> Effects[None]:
        raise NotImplementedError

    def _finish(self) -> Effects[None]:
        """Take the last steps, which settle or hand back all that the run holds."""
        raise NotImplementedError

    def _judge(self, ended: Pairs[D]) -> Pairs[D]:
        """Return the outcomes to settle for messages or records that the pool has handled."""
        raise NotImplementedError

    def _hand_back(self, unstarted: list[D]) -> None:
        """Let others have messages or records that no handler was called with."""
        raise NotImplementedError

    # -- a run -------------------------------------------------------------------------------------------------------

    @property
    def is_spread(self) -> bool:
        """Whether there are other shards to serve while one is unavailable."""
        return len(self._context.shards) > 1

    @property
    def heartbeat_seconds(self) -> float:
        """The seconds between two calls of `renew`."""
        return self._leases.heartbeat_seconds

    def run(self, grace: Callable[[], float]) -> Effects[None]:
        """Take turns until stopped.

        Args:
            grace: returns how many seconds running handlers get at the end.

        Raises:
            BaseException: the error that ended the run, once what the handlers have done is settled.
        """
        stopping, ended_by = self.shutdown, None
        try:
            while not stopping.is_requested:
                yield from self._ride_out(self._turn(), self.is_burst)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001  # raised below
            ended_by = error
            stopping.is_requested = True
            self._log.error("consumer stops after an error", error=error_text(error), running=self.unfinished)
        stopping.begin(grace)
        try:
            yield from self._finish()
        except Exception as error:
            if ended_by is None:
                raise
            self._log.warning("consumer did not end in good order", error=error_text(error))
        if ended_by is not None:
            raise ended_by

    def _ride_out(self, step: Effects[None], heeds_refusals: bool = False) -> Effects[None]:
        """Take a step; if the server is unavailable or refuses it, wait instead of raising.

        Args:
            heeds_refusals: raise LoginRefused: nobody may be there to grant the right that is missing.
        """
        try:
            yield from step
        except (ServerError, StoreError) as error:
            if heeds_refusals and isinstance(error, LoginRefused):
                raise
            yield Sleep(self.outage.lost(error))
            self.on_outage()
            yield CloseListeners()
        else:
            self.outage.served()

    def _within_most(self, room: int) -> int:
        """Return how much room is left for new messages or records if the run ends after a number of them."""
        if self._most is None:
            return room
        return max(0, min(room, self._most - self.handled - len(self._unsettled) - self.unfinished))

    @property
    def _has_all(self) -> bool:
        """Whether the run ends, since it has handled as many as it should."""
        return self._most is not None and self.handled >= self._most

    def _submit(self, messages: list[D]) -> None:
        self.unfinished += len(messages)
        self.pool.submit(messages)

    def _collect_outcomes(self) -> None:
        """Fetch the outcomes of what the pool has handled."""
        if self.pool.is_behind:
            self.pool.adapt()
        ended = self.pool.outcomes()
        self._unsettled.wake()
        if ended:
            self.unfinished -= len(ended)
            self._unsettled.add(self._judge(ended))

    def _end_handlers(self) -> Effects[None]:
        """Hand back what has not started, wait for running handlers, and interrupt those that do not end in time."""
        stopping, unsettled = self.shutdown, self._unsettled
        unsettled.end()
        unstarted = self.pool.unstarted()
        self.unfinished -= len(unstarted)
        self._hand_back(unstarted)
        if self.unfinished and stopping.by_signal and not stopping.at_once:
            hint = "press Ctrl-C again to abandon them"
            self._log.info("waiting for running handlers", running=self.unfinished, hint=hint)
        while True:
            stopping.heed()
            self._collect_outcomes()
            if unsettled.are_due:
                yield from self._ride_out(self.settle())
            if stopping.is_late or not (self.unfinished or unsettled.are_due):
                break
            if not unsettled.are_due:  # otherwise a try failed, and its pause is over: try again
                yield from self.report()
                yield WaitForWork(min(stopping.deadline - time.monotonic(), FALLBACK_MS / 1000))
        if self.pool.interrupt() and not stopping.at_once:
            end = time.monotonic() + INTERRUPTED_SECONDS
            while self.unfinished and (left := end - time.monotonic()) > 0:
                yield WaitForWork(left)
                self._collect_outcomes()
