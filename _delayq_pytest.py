"""The pytest plugin of delayq: queues in memory as fixtures.

It is outside the package because pytest imports it at every start: delayq and redis are imported only if a test asks
for a queue.
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
    """A `delayq.testing.Clock` with a server in memory; ``delayq_clock.add(queue)`` moves one of your queues there."""
    from delayq.testing import in_memory  # noqa: PLC0415  # slow, and other tests do not need it

    with in_memory() as clock:
        yield clock


@pytest.fixture
def delayq_queue(delayq_clock: Clock) -> Queue:
    """A queue in memory that uses the time of `delayq_clock`."""
    return delayq_clock.queue("tests")


@pytest.fixture
def delayq_async_clock() -> Iterator[AsyncClock]:
    """The same for queues of `delayq.aio`: a `delayq.testing.aio.Clock`, whose ``add`` also takes blocking queues."""
    from delayq.testing.aio import in_memory  # noqa: PLC0415  # the same

    with in_memory() as clock:
        yield clock


@pytest.fixture
def delayq_async_queue(delayq_async_clock: AsyncClock) -> aio.Queue:
    """A `delayq.aio.Queue` in memory that uses the time of `delayq_async_clock`."""
    return delayq_async_clock.queue("tests")
