# Made from delayq/testing/aio/assertions.py by `make faces`: change that file.
"""Assertions on queues, in memory or not, whose failures tell what there is."""

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
    """Return what was sent to a queue and not withdrawn, in the order of the sends.

    Of what was sent while the clock stood, the earlier due comes first, then the lower id: messages that were sent
    without one are numbered.

    That is what waits, runs or is dead now, and, of a queue in memory, what a `Clock` has handled. What was cancelled
    or purged is not among them, nor what was received and acked otherwise.
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
    """Assert that a message was sent to a queue, and return the first such one; see `sent` for what counts.

    Args:
        payload: equal to what a handler gets, also when it was sent in another form: a tuple is a list there.
        due_in: seconds or a timedelta from its sending until it is due.
        due_at: an aware datetime.
        headers: those that it has, maybe among others.
        within: by how much `due_in` and `due_at` may be missed, seconds or a timedelta. Times that were computed from
            `datetime.now()` need that, unless the clock moves it, too.
        count: exactly so many, 1 or more; at least one when None.
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
        reason: of its death, such as "retries-exhausted", or what a handler has given to `Reject`.
        error: a part of its last error, as in "TimeoutError".
    """
    __tracebackhide__ = True
    letters, stats = run(dead_letters(queue))
    return check_dead(queue.name, letters, stats, payload, id, reason, error)


def assert_empty(queue: AnyQueue) -> None:
    """Assert that nothing waits or runs in a queue, and nothing is dead."""
    __tracebackhide__ = True
    check_empty(queue.name, run(messages_left(queue)))
