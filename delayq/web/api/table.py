"""The table of all operations, in the order of the API page."""

from __future__ import annotations

from itertools import chain

from delayq.web.api import actions, dead_letters, groups, jobs, messages, queues, schedules, send, servers, topics
from delayq.web.api.operation import Operation

MODULES = (servers, queues, send, messages, actions, dead_letters, schedules, topics, groups, jobs)
OPERATIONS: tuple[Operation, ...] = tuple(chain.from_iterable(each.OPERATIONS for each in MODULES))
