# Made from delayq/aio/schedules.py by `make faces`: change that file.
"""The schedules of a queue."""

from __future__ import annotations

import datetime as dt
from typing import Any

from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.envelope import Headers
from delayq.model.occurrence import Missed, make_plan
from delayq.model.schedule import Schedule, Slot
from delayq.model.units import Seconds
from delayq.operations import schedules
from delayq.operations.queue_context import QueueContext
from delayq.transport.executor import Executor


class Schedules:
    """Messages that are sent at set times, like cron: `Queue.schedules`.

    No scheduler process is needed: the next occurrence of a schedule waits in the queue, and the consumer that is
    handed it sends the one after it. So each slot is sent once, no matter how many consumers there are.
    """

    def __init__(self, context: QueueContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor

    def add(
        self,
        name: str,
        when: str,
        payload: Any = None,
        *,
        timezone: str = "UTC",
        missed: Missed = "once",
        grace: Seconds | None = None,
        start: dt.datetime | None = None,
        end: dt.datetime | None = None,
        jitter: Seconds = 0,
        max_retries: int | None = None,
        headers: Headers | None = None,
        timeout: Seconds | None = None,
        message: Outgoing | None = None,
    ) -> Schedule:
        """Create a schedule, or change the one with this name; an identical one is not changed.

        A change replaces the waiting occurrence and continues with the next slot from now. A paused schedule stays
        paused. One whose end is past is stored as finished.

        Args:
            name: 1 to 224 bytes.
            when: five fields, six with seconds in front, "@daily" and the like, or "every 90s".
            payload: of each occurrence; as `Queue.send` takes it.
            timezone: an IANA name, such as "Europe/Berlin". Names that do not mean the same on every machine, such as
                "localtime", are refused.
            missed: what to do with slots missed while no consumer ran: "once" runs one of them late, "skip" skips
                those later than `grace`, "all" runs each of them, in order.
            grace: seconds or a timedelta, for "skip"; a minute when None.
            start: skip earlier slots; an aware datetime.
            end: skip later slots; an aware datetime. After the last one, the schedule is finished.
            jitter: delay each slot by less than this, seconds or a timedelta (at most 366 days), and never up to
                the next slot. The delay is computed from queue, name and slot.
            max_retries, headers, timeout: of each occurrence; as `Queue.send` takes them.
            message: of each occurrence, instead of `payload` and these options: as `Task.message` returns it.

        Raises:
            InvalidInput: naming what is wrong; nothing was changed.
        """
        plan = make_plan(when, timezone, missed, grace, start, end, jitter, own=False)
        prepared = schedules.prepare(self._context, name, plan, payload, max_retries, headers, timeout, message)
        return self._executor.execute(schedules.add(self._context, prepared))

    def get(self, name: str) -> Schedule | None:
        """Return what is known about a schedule; None if it does not exist."""
        return self._executor.execute(schedules.get(self._context, name))

    def pause(self, name: str) -> bool:
        """Pause a schedule: its waiting occurrence is withdrawn. Return False if it does not exist."""
        return self._executor.execute(schedules.pause(self._context, name))

    def resume(self, name: str) -> bool:
        """Resume a schedule with its next slot from now; slots missed in the pause stay missed."""
        return self._executor.execute(schedules.resume(self._context, name))

    def remove(self, name: str) -> bool:
        """Remove a schedule and its waiting occurrence; a running one finishes. Return False if there was none."""
        return self._executor.execute(schedules.remove(self._context, name))

    def run_now(self, name: str) -> SentMessage:
        """Send an extra occurrence, even of a paused schedule; its slots do not change.

        Raises:
            InvalidInput: the schedule does not exist.
        """
        return self._executor.execute(schedules.run_now(self._context, name))

    def next(self, n: int = 5, name: str | None = None) -> list[Slot]:
        """Return the next `n` (1 to 100,000) slots, of one schedule or of all, earliest first.

        These are the slots that will run if a consumer runs from now on: an overdue one comes first, unless it will be
        skipped.

        Raises:
            InvalidInput: the schedule does not exist.
        """
        return self._executor.execute(schedules.upcoming(self._context, n, name))

    def list(self) -> list[Schedule]:
        """Return all schedules, by name."""
        return self._executor.execute(schedules.list_all(self._context))
