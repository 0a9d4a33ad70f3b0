"""The table of all operations, in the order in which people read them."""

from __future__ import annotations

from itertools import chain

from delayq.web.api import dead_letters, messages, queues, schedules, servers, tasks, topics
from delayq.web.api.operation import Operation

OPERATIONS: tuple[Operation, ...] = tuple(
    chain.from_iterable(each.OPERATIONS for each in (servers, queues, messages, dead_letters, schedules, topics, tasks))
)
