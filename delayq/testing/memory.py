"""Queues and topics in memory for the time of a test."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from delayq.testing.base_clock import Traveller
from delayq.testing.clock import Clock
from delayq.testing.face import AnyQueue, AnyTopic


@contextmanager
def in_memory(
    *subjects: AnyQueue | AnyTopic,
    start: dt.datetime | None = None,
    traveller: Traveller | None = None,
    real: Iterable[AnyQueue | AnyTopic] | bool = (),
) -> Iterator[Clock]:
    """Move queues and topics into memory, where they start empty, until the block ends; then they are restored.

    All share one clock and one server, which nobody else sees. Nothing connects to a real server: until the block ends,
    a call of any other queue or topic raises RealServerUsed, in all threads and in processes forked meanwhile. A
    handler that is registered within the block is removed at its end.

    Args:
        subjects: the queues and topics that the code under test uses; `Clock.queue` and `Clock.topic` make others.
        start: where the clock starts, an aware datetime; None for now.
        traveller: the object of ``time_machine.travel(…)`` or ``freezegun.freeze_time(…)``, moved with the clock, so
            that `datetime.now()` agrees with it.
        real: queues and topics that may use their real servers; they are recognized by their names. True for all, and
            for the dashboard, the commands and `delayq.queues`. What one of several nested blocks allows is allowed.

    Raises:
        ModuleNotFoundError: fakeredis is not installed; the text says how to install it.
    """
    clock = Clock(start, traveller)
    try:
        clock.forbid_servers(real)
        clock.add(*subjects)
        yield clock
    finally:
        clock.close()
