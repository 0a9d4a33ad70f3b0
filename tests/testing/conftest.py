"""Fixtures: queues as a program declares them in its modules, for a server that does not exist; and a clock."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq import Queue, backoff
from delayq.testing import Clock, in_memory

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def emails() -> Queue:
    return Queue("emails", url=NOWHERE, max_retries=2, backoff=backoff.sequence([10, 60]), lease=30)


@pytest.fixture
def orders() -> Queue:
    return Queue("orders", url=NOWHERE)


@pytest.fixture
def clock(emails: Queue, orders: Queue) -> Iterator[Clock]:
    with in_memory(emails, orders) as clock:
        yield clock
