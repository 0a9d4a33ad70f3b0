# Made from delayq/testing/aio/assertions.py by `make faces`: change that file.
"""Assertions on queues, in memory or not; a failure lists the messages that there are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from delayq.model.message_info import MessageInfo
from delayq.model.units import Seconds
from delayq.testing.checks import ANY, Wanted, check_count, check_dead, check_empty
from delayq.testing.face import AnyQueue, run
from delayq.testing.sent import SentInfo, dead_letters, messages_left, messages_sent


def sent(queue: AnyQueue) -> list[SentInfo]:
    """Return the messages that were sent to a queue, in the order of the sends.

    Messages sent at the same time on the clock are sorted by due time, then by id; ids that a test does not give are
    numbered.

    These are the messages that wait, run or are dead now and, in a queue in memory, those that a `Clock` has handled.
    Messages that were cancelled, purged, or received and acked without a `Clock` are missing.
    """
    return run(messages_sent(queue))


def assert_sent(
    queue: AnyQueue,
    payload: Any = ANY,
    *,
    id: str | None = None,
    due_in: Seconds | None = None,
    due_at: dt.datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    within: Seconds = 0,
    count: int | None = None,
) -> SentInfo:
    """Assert that a message was sent to a queue, and return the first that matches; see `sent` for what counts.

    Args:
        payload: as it was sent, or as a handler gets it: a tuple is a list there.
        due_in: seconds or a timedelta from the send until it is due.
        due_at: an aware datetime.
        headers: that it must have; it may have others.
        within: tolerance of `due_in` and `due_at`, seconds or a timedelta. Times computed from `datetime.now()` need
            it, unless the clock moves that too.
        count: exactly this many, 1 or more; None for at least one.
    """
    __tracebackhide__ = True
    wanted = Wanted(payload, id, due_in, due_at, headers, within)
    check_count(count)
    return wanted.found(queue.name, sent(queue), count)


def assert_not_sent(
    queue: AnyQueue,
    payload: Any = ANY,
    *,
    id: str | None = None,
    due_in: Seconds | None = None,
    due_at: dt.datetime | None = None,
    headers: Mapping[str, Any] | None = None,
    within: Seconds = 0,
) -> None:
    """Assert that no such message was sent to a queue, or none at all; the arguments are those of `assert_sent`."""
    __tracebackhide__ = True
    wanted = Wanted(payload, id, due_in, due_at, headers, within)
    wanted.missing(queue.name, sent(queue))


def assert_dead(
    queue: AnyQueue, payload: Any = ANY, *, id: str | None = None, reason: str | None = None, error: str | None = None
) -> MessageInfo:
    """Assert that a message is among the dead letters of a queue, and return it.

    Args:
        reason: of its death, such as "retries-exhausted", or the one that a handler gave to `Reject`.
        error: a part of its last error, as in "TimeoutError".
    """
    __tracebackhide__ = True
    letters, stats = run(dead_letters(queue))
    return check_dead(queue.name, letters, stats, payload, id, reason, error)


def assert_empty(queue: AnyQueue) -> None:
    """Assert that no message waits, runs or is dead in a queue."""
    __tracebackhide__ = True
    check_empty(queue.name, run(messages_left(queue)))
