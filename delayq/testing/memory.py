"""Queues and topics in memory for the time of a test."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager

from delayq.testing.base_clock import Traveller
from delayq.testing.clock import Clock
from delayq.testing.face import AnyQueue, AnyTopic


@contextmanager
def in_memory(
    *subjects: AnyQueue | AnyTopic, start: dt.datetime | None = None, traveller: Traveller | None = None
) -> Iterator[Clock]:
    """Bring queues and topics into memory, where they are empty, until the block ends; then they are what they were.

    All share one server, which nobody else sees, and one clock. Nothing connects to the server that the queues are
    made for. A handler that is registered within is forgotten at the end.

    Args:
        subjects: the queues and topics that the code under test uses; `Clock.queue` and `Clock.topic` make others.
        start: an aware datetime for the clock to begin with; the present when None.
        traveller: the object of ``time_machine.travel(…)`` or ``freezegun.freeze_time(…)``, to be moved along with the
            clock, so that `datetime.now()` agrees with it.

    Raises:
        ModuleNotFoundError: fakeredis is not installed; it tells how to.
    """
    clock = Clock(start, traveller)
    try:
        clock.add(*subjects)
        yield clock
    finally:
        clock.close()
