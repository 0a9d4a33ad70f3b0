"""The pytest plugin of delayq: queues in memory as fixtures, and an option that forbids real servers.

It is outside the package because pytest imports it at every start: delayq and redis are imported only if a test asks
for a queue, or the option is on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from delayq import Queue, aio
    from delayq.testing import Clock
    from delayq.testing.aio import Clock as AsyncClock

OPTION = "delayq_forbid_servers"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option, for the command line and for the configuration file."""
    text = "queues and topics that no test has in memory raise an error instead of using their server"
    parser.getgroup("delayq").addoption("--delayq-forbid-servers", action="store_true", default=None, help=text)
    parser.addini(OPTION, text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Forbid real servers until the end of the run, if the option is on."""
    if config.getoption(OPTION) or config.getini(OPTION):
        from delayq.model.server_guard import forbidding  # noqa: PLC0415  # the same as below

        block = ExitStack()
        block.enter_context(forbidding(()))
        config.add_cleanup(block.close)


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
