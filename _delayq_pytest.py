"""The pytest plugin of delayq: queues in memory as fixtures.

It stands outside of the package because pytest imports it at each start: without a test that asks for a queue, nothing
of delayq, nor redis, is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from delayq import Queue, aio
    from delayq.testing import Clock
    from delayq.testing.aio import Clock as AsyncClock


@pytest.fixture
def delayq_clock() -> Iterator[Clock]:
    """A `delayq.testing.Clock` with a server in memory; ``delayq_clock.add(queue)`` brings a queue of yours there."""
    from delayq.testing import in_memory  # noqa: PLC0415  # takes time that other tests need not spend

    with in_memory() as clock:
        yield clock


@pytest.fixture
def delayq_queue(delayq_clock: Clock) -> Queue:
    """A queue in memory, whose time is that of `delayq_clock`."""
    return delayq_clock.queue("tests")


@pytest.fixture
def delayq_async_clock() -> Iterator[AsyncClock]:
    """The same for queues of `delayq.aio`: a `delayq.testing.aio.Clock`, whose ``add`` takes blocking queues, too."""
    from delayq.testing.aio import in_memory  # noqa: PLC0415  # likewise

    with in_memory() as clock:
        yield clock


@pytest.fixture
def delayq_async_queue(delayq_async_clock: AsyncClock) -> aio.Queue:
    """A `delayq.aio.Queue` in memory, whose time is that of `delayq_async_clock`."""
    return delayq_async_clock.queue("tests")
