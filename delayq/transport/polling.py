"""Whether a call polls for its reply instead of sleeping until the reply wakes it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

SECONDS = 0.0002
"""How long a call polls. A server on this machine answers within it, one across a network rarely does."""

SHORT_BYTES = 2048
"""Replies to longer commands are not polled for."""

_EARNED = SECONDS / 20  # by a reply that came while its call polled: one in twenty calls may poll in vain
_SHARE = 1 / 256  # of all time, in which calls poll in vain at most if none earns more
_MOST = 4 * SECONDS

give_way: Callable[[], object] = getattr(os, "sched_yield", lambda: None)
"""Let others, such as the server, use the processor between two polls."""


class PollBudget:
    """The time for which the calls to one server may still poll in vain; threads, queues and topics share it.

    A call that slept says nothing about the next one, because waking up takes longer than many scripts. So the budget
    grows with each reply that came in time, and slowly by itself: now and then, a call tries whether it can be in time.
    """

    def __init__(self) -> None:
        self._left = _MOST
        self._looked = 0.0

    def allows(self, now: float) -> bool:
        """Whether a call that begins `now`, as `time.perf_counter` says, may poll."""
        self._left = min(_MOST, self._left + (now - self._looked) * _SHARE)
        self._looked = now
        return self._left >= 0

    def note(self, in_time: bool) -> None:
        """Note whether the replies to a call that polled came in time."""
        self._left += _EARNED if in_time else -SECONDS


_budgets: WeakValueDictionary[tuple[Any, ...], PollBudget] = WeakValueDictionary()


def budget_of(pool: Any) -> PollBudget:
    """Return the budget for the server of a connection pool: with one for each queue, many would poll all the time."""
    settings = pool.connection_kwargs
    server = settings.get("path"), settings.get("host"), settings.get("port"), getattr(pool, "service_name", None)
    return _budgets.setdefault(server, PollBudget())
