# Made from delayq/testing/aio/clock.py by `make faces`: change that file.
"""The clock of queues in memory, which serves them as it moves."""

from __future__ import annotations

import datetime as dt
from typing import Any, Unpack

from delayq.model.message import Message
from delayq.model.units import Seconds
from delayq.queue import Queue
from delayq.testing.base_clock import LIMIT, BaseClock, TimeUnits, Traveller
from delayq.testing.face import FACES, AnyQueue, AnyTopic, Client, called, run
from delayq.topic import Topic

NOWHERE = "unix:///in/memory"


class Clock(BaseClock):
    """The time of queues in memory: it stands still until the test moves it.

    `advance` lets time pass without a consumer, `run_for` and `run_until` let it pass with a consumer at work, and
    `run_due` runs a consumer while time stands still. Handlers run in the test's thread, one at a time, and messages
    are acked, retried or buried as in production.

    Args:
        start: an aware datetime; None for now, in whole milliseconds.
        traveller: moved with the clock, so that `datetime.now()` agrees with it.

    Attributes:
        ms: the time, in milliseconds since 1970.
        handled: all messages that `run_due`, `run_for` and `run_until` have handled, in order.
    """

    handled: list[Message]

    def __init__(self, start: dt.datetime | None = None, traveller: Traveller | None = None) -> None:
        super().__init__(FACES, called, start, traveller)

    @property
    def client(self) -> Client:
        """A client of the server in memory that all queues and topics of this clock share."""
        client: Client = self._connect(FACES[0])
        return client

    def add(self, *subjects: AnyQueue | AnyTopic) -> None:
        """Move queues and topics into memory, where they start empty; `close` restores them."""
        for subject in subjects:
            self._add(subject)

    def queue(self, name: str, **options: Any) -> Queue:
        """Return a new queue in memory; the options are those of `Queue`."""
        queue = Queue(name, url=NOWHERE, **options)
        self._add(queue)
        return queue

    def topic(self, name: str, **options: Any) -> Topic:
        """Return a new topic in memory; the options are those of `Topic`."""
        topic = Topic(name, url=NOWHERE, **options)
        self._add(topic)
        return topic

    def run_due(self, *queues: AnyQueue, limit: int = LIMIT, raise_errors: bool = True) -> list[Message]:
        """Handle what is due, and what that makes due, without moving the clock.

        Args:
            queues: the ones to serve; by default, all in memory that have a handler.
            limit: maximum messages to handle, 1 or more: a message that sends its own successor would never end.
            raise_errors: at the end of the call, raise what a handler raised, unless a retry within the call
                succeeded; raise several errors as a group. Their messages are then in retry or dead, as in production.
                `Reject` and `RetryAfter` are not errors.

        Returns:
            The messages handled, in order; a retried one occurs several times.

        Raises:
            HandlerMissing: one of `queues` has no handler, or no queue in memory has one.
            AssertionError: there was more to handle than `limit`.
        """
        return run(self._run(self.ms, queues, limit, raise_errors))

    def run_for(
        self, by: Seconds = 0, *, limit: int = LIMIT, raise_errors: bool = True, **units: Unpack[TimeUnits]
    ) -> list[Message]:
        """Let time pass, as `advance` does, with a consumer at work: each message is handled when it is due."""
        return run(self._run(self._after(by, units), (), limit, raise_errors))

    def run_until(self, at: dt.datetime, *, limit: int = LIMIT, raise_errors: bool = True) -> list[Message]:
        """Let time pass until an aware datetime, with a consumer at work, as `run_for` does."""
        return run(self._run(self._end_at(at), (), limit, raise_errors))
