"""The time of queues in memory, and what happens as it passes."""

from __future__ import annotations

import datetime as dt
import itertools
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol, TypedDict, Unpack

from redis import Redis

from delayq.consumer import Consumer
from delayq.errors import HandlerMissing, InvalidInput, InvalidTime
from delayq.model.message import Message
from delayq.model.units import MAX_TIME_MS, Seconds, from_ms, milliseconds, timestamp_ms
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import computed
from delayq.queue import Queue
from delayq.testing.drain import Drain
from delayq.testing.fake_server import fake_server
from delayq.testing.served_by import served_by

LIMIT = 1000


class Traveller(Protocol):
    """What moves `datetime.now()` in tests; time_machine.travel and freezegun.freeze_time give such an object."""

    def move_to(self, destination: dt.datetime, /) -> Any:
        """Let it be another time."""


class TimeUnits(TypedDict, total=False):
    """A length of time, by its units."""

    days: float
    hours: float
    minutes: float
    seconds: float
    milliseconds: float


class Clock:
    """The time of queues in memory: it stands until the test moves it.

    `advance` lets time pass while nobody handles messages, `run_for` and `run_until` let it pass with a consumer at
    work, and `run_due` is a consumer at work while it stands. Handlers run in the test's thread, one at a time, and
    their messages become what they become in life.

    Args:
        start: an aware datetime; the present, in whole milliseconds, when None.
        traveller: is moved along, so that `datetime.now()` agrees with the clock.

    Attributes:
        ms: the time, in milliseconds since 1970.
        handled: all messages that `run_due`, `run_for` and `run_until` have handled, in their order.
    """

    def __init__(self, start: dt.datetime | None = None, traveller: Traveller | None = None) -> None:
        self.ms: float = int(time.time() * 1000) if start is None else timestamp_ms(start)
        self.handled: list[Message] = []
        self._traveller = traveller
        self._queues: list[Queue] = []
        self._numbers = itertools.count(1)
        self._kept = ExitStack()
        self._client: Redis | None = None
        self._travel()

    def __call__(self) -> float:
        """Return the time as a queue's `clock` tells it: in milliseconds."""
        return self.ms

    def __repr__(self) -> str:
        return f"<Clock {self.now().isoformat()}>"

    def now(self) -> dt.datetime:
        """Return the time, in UTC."""
        return from_ms(self.ms)

    @property
    def client(self) -> Redis:
        """A client of the server in memory that all queues of this clock share."""
        if self._client is None:
            self._client = self._kept.enter_context(fake_server())
        return self._client

    def add(self, *queues: Queue) -> None:
        """Bring queues into memory, where they are empty, until `close`; then they are again what they were."""
        for queue in queues:
            if not isinstance(queue, Queue):
                raise InvalidInput(f"{queue!r} is no delayq.Queue: give the queues that the code under test sends to")
            if queue in self._queues:
                raise InvalidInput(f"queue {queue.name} is in memory already: give it once")
            self._kept.enter_context(served_by(queue, self.client, self))
            self._adopt(queue)

    def queue(self, name: str, **options: Any) -> Queue:
        """Return a new queue in memory; the options are those of `Queue`."""
        queue = Queue(name, redis=self.client, clock=self, **options)
        self._kept.callback(queue.close)
        self._adopt(queue)
        return queue

    def close(self) -> None:
        """Forget what is in memory, and let all queues be again what they were."""
        self._queues.clear()
        self._client = None
        self._kept.close()

    def advance(self, by: Seconds = 0, **units: Unpack[TimeUnits]) -> None:
        """Let time pass while nobody handles messages.

        Args:
            by: seconds (0 or more) or a timedelta.
            units: or days, hours, minutes, seconds, milliseconds.
        """
        self.move(self._after(by, units))

    def run_due(self, *queues: Queue, limit: int = LIMIT, raise_errors: bool = True) -> list[Message]:
        """Handle what is due, and what becomes due thereby, while the clock stands.

        Args:
            queues: which to serve; all in memory that have a handler, when none is given.
            limit: the most messages to handle, 1 or more: one that sends its own successor would never end.
            raise_errors: raise what a handler has raised, and no retry within this call has made good, at the end of
                the call; of several errors, a group. Their messages are in retry or dead then, as in life. `Reject`
                and `RetryAfter` are no errors.

        Returns:
            the messages handled, in their order; one that was retried stands there several times.

        Raises:
            HandlerMissing: one of `queues` has no handler, or none at all has one.
            AssertionError: there was more to handle than `limit`.
        """
        return self._run(self.ms, queues, limit, raise_errors)

    def run_for(
        self, by: Seconds = 0, *, limit: int = LIMIT, raise_errors: bool = True, **units: Unpack[TimeUnits]
    ) -> list[Message]:
        """Let time pass, as `advance`, with a consumer at work: each message is handled, as by `run_due`, when due."""
        return self._run(self._after(by, units), (), limit, raise_errors)

    def run_until(self, at: dt.datetime, *, limit: int = LIMIT, raise_errors: bool = True) -> list[Message]:
        """Let time pass until an aware datetime, with a consumer at work, as `run_for`."""
        end = timestamp_ms(at)
        if end < self.ms:
            raise InvalidTime(f"at={at.isoformat()} is over: the clock is at {self.now().isoformat()}")
        return self._run(end, (), limit, raise_errors)

    def move(self, ms: float) -> None:
        """Let it be `ms`, unless it is later already."""
        if ms > self.ms:
            self.ms = ms
            self._travel()

    def _run(self, end: float, queues: tuple[Queue, ...], limit: int, raise_errors: bool) -> list[Message]:
        drain = Drain(self, self._serving(queues), limit)
        try:
            drain.until(end)
        finally:
            self.handled += drain.handled
        if raise_errors:
            drain.raise_errors()
        return drain.handled

    def _serving(self, queues: tuple[Queue, ...]) -> list[Consumer]:
        for queue in queues:
            if queue not in self._queues:
                raise InvalidInput(f"queue {queue.name} is not in memory: give it to in_memory, or to clock.add")
        if not self._queues:
            raise InvalidInput("no queue is in memory: give one to in_memory, or to clock.add")
        consumers, missing = [], None
        for queue in queues or self._queues:
            try:
                consumers.append(Consumer(queue))
            except HandlerMissing as error:
                missing = missing or error
        if missing is not None and (queues or not consumers):
            raise missing
        return consumers

    def _adopt(self, queue: Queue) -> None:
        queue.execute(_set_id_factory, self._number)
        self._queues.append(queue)

    def _number(self) -> str:
        # Messages that are due at the same instant are handled in the order of their ids: here, that of their sends.
        return f"message-{next(self._numbers):06}"

    def _after(self, by: Seconds, units: TimeUnits) -> float:
        try:
            more = dt.timedelta(**units)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidTime(f"{units} is not a time: {error}; give numbers of days, hours, minutes, …") from error
        after = self.ms + milliseconds(by, "the time to pass") + milliseconds(more, "the time to pass")
        if after > MAX_TIME_MS:
            raise InvalidTime(f"the time to pass leads from {self.now().isoformat()} past the year 9999")
        return after

    def _travel(self) -> None:
        if self._traveller is not None:
            self._traveller.move_to(self.now())


@computed
def _set_id_factory(context: QueueContext, factory: Callable[[], str]) -> None:
    context.id_factory = factory
