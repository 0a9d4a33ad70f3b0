# Made from delayq/aio/dead_letters.py by `make faces`: change that file.
"""The dead letters of a queue."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from delayq.model.envelope import Headers
from delayq.model.message_info import MessageInfo
from delayq.model.units import Seconds
from delayq.operations import inspect, manage
from delayq.operations.bulk import causes, edit
from delayq.operations.bulk.causes import Causes
from delayq.operations.bulk.redrive import Redrive, Redriven
from delayq.operations.bulk.selection import Choice
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

    def bury(self, id: str, reason: str = manage.BURIED) -> manage.Buried:
        """Put a message that waits (pending, ready or retry) among the dead letters, as it is.

        A place that a limit keeps for it is free. Of an occurrence of a schedule, its slot alone is left out. A message
        that rests in a lake is "unknown" here.

        Args:
            reason: why, at most 2,000 characters of it; `MessageInfo.reason`.

        Returns:
            "buried"; "in_flight" when it is being handled, "dead" when it is a dead letter already, or "unknown":
            nothing was changed.
        """
        outcome: manage.Buried = self._executor.execute(manage.bury(self._context, id, reason))
        return outcome

    def causes(self, most: int = 10_000) -> Causes:
        """Tell of what dead letters died, the most frequent cause first; numbers in their errors make no difference.

        Args:
            most: how many to look at, 1 to 1,000,000: those that died last, of several shards
                an equal part each.
        """
        return self._executor.execute(causes.causes(self._context, most))

    def requeue(self, ids: str | Iterable[str] = "all", delay: Seconds = 0) -> int:
        """Bring dead letters back to pending with their retries reset.

        Args:
            ids: one id, several, or "all" for what is dead now. (A message whose id is "all": give ["all"].)
            delay: seconds (0 or more) or a timedelta until they are due.

        Returns:
            how many came back; those whose payload is gone stay dead.
        """
        return self._executor.execute(manage.requeue_chosen(self._context, ids, delay))

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
        """Bring back the dead letters to which all that is given applies, the longest dead first.

        What dies later than the call, perhaps anew, is not touched. It may be interrupted at any point, also by an
        error or a kill: what has come back is back, all else is dead as before, and a second call goes on.

        Args:
            older_than: died so long ago or longer (seconds or a timedelta), or at this moment or before.
            newer_than: died less than so long ago, or after this moment.
            error: text that is part of the last error, upper and lower case as it is; or a compiled pattern.
            reason: why they died, literally.
            headers: what they all have; a string also stands for a number, a boolean or bytes that read like it.
            delay: until they are due, from when they come back.
            rate: how many come back, at most: 100 or "100/s", "5/10s", "9/h"; None for as fast as it goes. The call
                lasts as long as it takes.
            dry_run: change nothing, and count.
            progress: is called with how far it is: after each page, or with a rate, about every tenth of a second.

        Raises:
            InvalidInput: an argument is out of range; nothing was changed.
        """
        chosen = Choice(older_than, newer_than, error, reason, headers)
        redrive = Redrive(chosen, delay, rate, dry_run)
        while not redrive.done:
            told = self._executor.execute(redrive.step(self._context))
            if progress is not None:
                progress(told)
            time.sleep(redrive.pause)
        return redrive.told

    def edit(
        self,
        id: str,
        payload: Any = msgspec.UNSET,
        headers: Headers | None = None,
        delay: Seconds = 0,
        died_at: dt.datetime | None = None,
        timeout: Any = msgspec.UNSET,
    ) -> bool:
        """Bring a dead letter back to pending with another payload, headers or timeout, and its retries reset.

        It counts as sent now: `created_at` and `expires_in` begin anew. Its id, its number of retries and its attempt
        numbers go on.

        Args:
            payload: as in `Queue.send`; its own when it is not given.
            headers: in place of all of its own, {} for none; its own when None.
            delay: seconds (0 or more) or a timedelta until it is due.
            died_at: `MessageInfo.died_at` of the dead letter that you have looked at; None for what is there now.
            timeout: as in `Queue.send`, None for no limit of its own; its own when it is not given.

        Returns:
            False when it is not dead (any more), or has died again since `died_at`: nothing was changed.

        Raises:
            InvalidInput: no payload, headers or timeout; or the payload is gone and none is given; nothing was changed.
        """
        return self._executor.execute(edit.edit(self._context, id, payload, headers, delay, died_at, timeout))

    def purge(self, older_than: Seconds | None = None) -> int:
        """Discard dead letters, those that died `older_than` ago or all; return how many there were."""
        return self._executor.execute(manage.purge(self._context, ["dead"], older_than))
