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
    """The time of queues in memory: it stands until the test moves it.

    `advance` lets time pass while nobody handles messages, `run_for` and `run_until` let it pass with a consumer at
    work, and `run_due` is a consumer at work while it stands.
    Handlers run in the test's thread, one at a time, and their messages become what they become in life.

    Args:
        start: an aware datetime; the present, in whole milliseconds, when None.
        traveller: is moved along, so that `datetime.now()` agrees with the clock.

    Attributes:
        ms: the time, in milliseconds since 1970.
        handled: all messages that `run_due`, `run_for` and `run_until` have handled, in their order.
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
        """Bring queues and topics into memory, where they are empty, until `close`; then they are what they were."""
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
        return run(self._run(self.ms, queues, limit, raise_errors))

    def run_for(
        self, by: Seconds = 0, *, limit: int = LIMIT, raise_errors: bool = True, **units: Unpack[TimeUnits]
    ) -> list[Message]:
        """Let time pass, as `advance`, with a consumer at work: each message is handled, as by `run_due`, when due."""
        return run(self._run(self._after(by, units), (), limit, raise_errors))

    def run_until(self, at: dt.datetime, *, limit: int = LIMIT, raise_errors: bool = True) -> list[Message]:
        """Let time pass until an aware datetime, with a consumer at work, as `run_for`."""
        return run(self._run(self._end_at(at), (), limit, raise_errors))
