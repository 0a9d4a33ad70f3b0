# Made from delayq/aio/dead_letters.py by `make faces`: change that file.
"""The dead letters of a queue."""

from __future__ import annotations

import datetime as dt
import math
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from delayq.model.causes import Causes
from delayq.model.choice import Choice
from delayq.model.envelope import Headers
from delayq.model.message_info import MessageInfo
from delayq.model.outcome import BURIED
from delayq.model.placement import Buried
from delayq.model.units import Seconds, timestamp_ms
from delayq.operations import inspect, manage
from delayq.operations.bulk import causes, edit
from delayq.operations.bulk.redrive import Redrive, Redriven
from delayq.operations.queue_context import QueueContext
from delayq.transport.executor import Executor


class DeadLetters:
    """Messages that were rejected or ran out of retries, kept with their last error: `Queue.dead`."""

    def __init__(self, context: QueueContext, executor: Executor) -> None:
        self._context = context
        self._executor = executor

    def list(self, limit: int = 100) -> list[MessageInfo]:
        """Return up to `limit` (1 to 1,000,000) dead letters, the longest dead first."""
        return self._executor.execute(inspect.peek(self._context, "dead", limit))

    def bury(self, id: str, reason: str = BURIED) -> Buried:
        """Move a waiting message (pending, ready, retry or held) to the dead letters, unchanged.

        This frees its place in a limit. For an occurrence of a schedule, only its slot is skipped. A message in a
        lake is "unknown" here.

        Args:
            reason: stored as `MessageInfo.reason`, at most 2,000 characters.

        Returns:
            "buried"; or "in_flight" if it is being handled, "dead" if it already is a dead letter, or "unknown":
            then nothing was changed.
        """
        outcome: Buried = self._executor.execute(manage.bury(self._context, id, reason))
        return outcome

    def causes(
        self, most: int = 10_000, *, shown: Callable[[str], str] = str, now: dt.datetime | None = None
    ) -> Causes:
        """Count dead letters by cause, the most frequent first; numbers in errors are ignored.

        Args:
            most: how many to look at, 1 to 1,000,000: the latest ones, an equal part of each shard.
            shown: returns the visible form of an error or a reason, such as without secrets; equal forms make one
                group.
            now: the end of `Cause.last_hour`; None leaves it, and the hour before, at 0.
        """
        now_ms = math.inf if now is None else timestamp_ms(now)
        return self._executor.execute(causes.causes(self._context, most, shown, now_ms))

    def requeue(
        self, ids: str | Iterable[str] = "all", *, delay: Seconds = 0, progress: Callable[[int], object] | None = None
    ) -> int:
        """Requeue dead letters: back to pending, with their retries reset.

        Args:
            ids: one id, several, or "all" for all present ones. (For a message whose id is "all", give ["all"].)
            delay: seconds (0 or more) or a timedelta until they are due.
            progress: a plain function, called with the number of messages that each step has moved.

        Returns:
            How many were requeued; those whose payload is gone stay dead.
        """
        return self._executor.execute(manage.requeue_chosen(self._context, ids, delay, progress))

    def redrive(
        self,
        *,
        older_than: Seconds | dt.datetime | None = None,
        newer_than: Seconds | dt.datetime | None = None,
        error: str | re.Pattern[str] | None = None,
        reason: str | None = None,
        headers: Headers | None = None,
        delay: Seconds = 0,
        rate: float | str | None = None,
        dry_run: bool = False,
        progress: Callable[[Redriven], object] | None = None,
    ) -> Redriven:
        """Requeue the dead letters that match all given filters, the longest dead first.

        Messages that die after the call are not touched. The call may be interrupted at any point, even by a kill:
        what was requeued stays requeued, the rest stays dead, and a second call continues.

        Args:
            older_than: died at least this long ago (seconds or a timedelta), or not after this datetime.
            newer_than: died less than this long ago, or after this datetime.
            error: text that the last error contains, case-sensitive; or a compiled pattern.
            reason: the exact reason of death.
            headers: that each must have; a string also matches a number, a boolean or bytes with the same text.
            delay: from their requeue until they are due.
            rate: maximum rate: 100 or "100/s", "5/10s", "9/h"; None for no limit. The call returns when all are
                requeued.
            dry_run: change nothing; only count.
            progress: called with the progress at the start, and after each page or, with a rate, about ten times a
                second.

        Raises:
            InvalidInput: an argument is out of range; nothing was changed.
        """
        chosen = Choice(older_than, newer_than, error, reason, headers)
        redrive = Redrive(chosen, delay, rate, dry_run)
        while not redrive.done:
            redriven = self._executor.execute(redrive.step(self._context))
            if progress is not None:
                progress(redriven)
            time.sleep(redrive.pause)
        return redrive.progress

    def edit(
        self,
        id: str,
        payload: Any = msgspec.UNSET,
        headers: Headers | None = None,
        *,
        delay: Seconds = 0,
        died_at: dt.datetime | None = None,
        timeout: Any = msgspec.UNSET,
    ) -> bool:
        """Requeue a dead letter with another payload, headers or timeout, and its retries reset.

        It counts as sent now: `created_at` and `expires_in` start again. It keeps its id and its number of retries,
        and its attempt numbers continue.

        Args:
            payload: as in `Queue.send`; by default, its own.
            headers: replace all that its sender gave, {} for none; None keeps them. An occurrence of a schedule stays
                one.
            delay: seconds (0 or more) or a timedelta until it is due.
            died_at: `MessageInfo.died_at` of the dead letter that you looked at; None for the current one.
            timeout: as in `Queue.send`, None for no limit; by default, its own.

        Returns:
            False if it is not dead, or has died again since `died_at`: nothing was changed.

        Raises:
            InvalidInput: an invalid payload, headers or timeout; or the payload is gone and none is given; nothing
            was changed.
        """
        return self._executor.execute(edit.edit(self._context, id, payload, headers, delay, died_at, timeout))

    def purge(self, older_than: Seconds | None = None, progress: Callable[[int], object] | None = None) -> int:
        """Discard all dead letters, or those that died at least `older_than` ago; return how many.

        Args:
            progress: as in `Queue.purge`.
        """
        return self._executor.execute(manage.purge(self._context, ["dead"], older_than, progress))
