"""The schedules of a queue of the async face."""

from __future__ import annotations

import datetime as dt
from typing import Any

from delayq.model.delivery import SentMessage
from delayq.model.envelope import Headers
from delayq.model.occurrence import Missed, make_plan
from delayq.model.schedule import Schedule, Slot
from delayq.model.units import Seconds
from delayq.operations import schedules
from delayq.operations.queue_context import QueueContext
from delayq.transport.executor_async import Executor


class Schedules:
    """Messages that are sent again and again, as cron does it: `Queue.schedules`.

    There is no process that sends them: the next occurrence of a schedule waits in the queue, and whoever is handed
    it sends the one after that. So each slot is sent once, however many consumers there are.
    """

    def __init__(self, context: QueueContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor

    async def add(
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
    ) -> Schedule:
        """Store a schedule, or change the one of this name; one that is the same is left as it is.

        A changed one takes its waiting occurrence along, and goes on with its next slot from now. One that is paused
        stays so. One whose end is past is stored as finished.

        Args:
            name: 1 to 224 bytes.
            when: five fields, six with the seconds in front, "@daily" and the like, or "every 90s".
            payload: of each occurrence; as `Queue.send` takes it.
            timezone: a name of the IANA's.
            missed: what becomes of slots that no consumer was there for: "once" runs one late, "skip" none that is
                later than `grace`, "all" each of them, in order.
            grace: seconds or a timedelta, for "skip"; a minute when None.
            start: leave out slots that are earlier; aware.
            end: leave out slots that are later; aware. After the last one, the schedule is finished.
            jitter: delay each slot by a time of its own, less than these seconds or this timedelta (at most 366 days),
                and never to the next one. It is computed from queue, name and slot.
            max_retries, headers, timeout: of each occurrence; as `Queue.send` takes them.

        Raises:
            InvalidInput: naming what is wrong; nothing was changed.
        """
        plan = make_plan(when, timezone, missed, grace, start, end, jitter, own=False)
        prepared = schedules.prepare(self._context, name, plan, payload, max_retries, headers, timeout)
        return await self._executor.execute(schedules.add(self._context, prepared))

    async def get(self, name: str) -> Schedule | None:
        """Return what is known of a schedule; None when there is none."""
        return await self._executor.execute(schedules.get(self._context, name))

    async def pause(self, name: str) -> bool:
        """Let a schedule rest: its waiting occurrence is withdrawn. False when there is no such schedule."""
        return await self._executor.execute(schedules.pause(self._context, name))

    async def resume(self, name: str) -> bool:
        """Let a schedule go on with its next slot from now; what it missed in its pause stays so."""
        return await self._executor.execute(schedules.resume(self._context, name))

    async def remove(self, name: str) -> bool:
        """Forget a schedule with its waiting occurrence; one that runs is finished. False when there was none."""
        return await self._executor.execute(schedules.remove(self._context, name))

    async def run_now(self, name: str) -> SentMessage:
        """Send an occurrence out of turn, also of a schedule that is paused; its slots stay as they are.

        Raises:
            InvalidInput: there is no such schedule.
        """
        return await self._executor.execute(schedules.run_now(self._context, name))

    async def next(self, n: int = 5, name: str | None = None) -> list[Slot]:
        """Return the next `n` (1 to 100,000) slots, of one schedule or of all that are still to fire, earliest first.

        They are those that will be handled if a consumer is there from now on: one that is overdue comes first,
        unless it is to be skipped.

        Raises:
            InvalidInput: there is no such schedule.
        """
        return await self._executor.execute(schedules.upcoming(self._context, n, name))

    async def list(self) -> list[Schedule]:
        """Return all schedules, by name."""
        return await self._executor.execute(schedules.list_all(self._context))
