"""Messages of tasks that this client's consumers do not know: they wait for one that does, and die if none comes.

In a rolling deployment, the next consumer may know them.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Sequence
from typing import Any, TypeVar

from delayq.errors import DelayqError
from delayq.log import log
from delayq.model import outcome as oc
from delayq.model.delivery import Delivery
from delayq.model.units import from_ms
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation

PATIENCE_MS = 15 * 60_000  # since a consumer has first met the message, and not since it was due
MOST_LATE_MS = 5 * 60_000  # that count of a delay in which no consumer was given it, such as a pause or an outage
FIRST_WAIT_MS, LONGEST_WAIT_MS = 10_000, 60_000
MOST_NAMES = 1000  # that are remembered: another program may send any

_FIRST, _LAST = "; first met at ", ", last at "
_MET = re.compile(rf"UnknownTask: .*{_FIRST}(\S+?)(?:{_LAST}(\S+))?", re.DOTALL)

D = TypeVar("D", bound=Delivery)


def judged(
    context: QueueContext, settled: Sequence[tuple[D, oc.Outcome]], results: list[bool | DelayqError]
) -> Operation[Sequence[tuple[D, oc.Outcome]]]:
    """Return the outcomes with a decision in place of each `Unknown`: wait for how long, or die.

    When a message was first met is kept with its last error, so all consumers know it.

    Args:
        results: gets the error of each that cannot be decided now.
    """
    unknown = [position for position, (_, outcome) in enumerate(settled) if isinstance(outcome, oc.Unknown)]
    if not unknown:
        return settled
    groups = list(context.by_shard(unknown, lambda position: settled[position][0].id))
    replies = yield [
        Command(scripts.keys.errors, ("HMGET", scripts.keys.errors, *(settled[each][0].id for each in positions)), list)
        for scripts, positions in groups
    ]
    decided = list(settled)
    for (_, positions), reply in zip(groups, replies, strict=True):
        for place, position in enumerate(positions):
            message, outcome = settled[position]
            if isinstance(reply, DelayqError):
                results[position] = reply
            elif isinstance(outcome, oc.Unknown):
                decided[position] = message, _decision(context, message, outcome, reply[place])
    return decided


def _decision(
    context: QueueContext, message: Delivery[Any], outcome: oc.Unknown, stored: bytes | str | None
) -> oc.Outcome:
    now = message.handed_ms
    met, last = _met(stored) or (now, now)
    if message.due_ms - last > 2 * LONGEST_WAIT_MS:  # rescheduled or requeued meanwhile: its patience begins again
        met = now
    met = min(now, met + max(0, now - message.due_ms - MOST_LATE_MS))
    if now - met >= PATIENCE_MS:
        minutes = PATIENCE_MS // 60_000
        error = f"{outcome.error}; no consumer had it for {minutes} minutes"
        return oc.Dead(oc.REASON_UNKNOWN_TASK, error, counted=False)
    since = context.unknown_tasks.get(outcome.task, now)
    if outcome.task not in context.unknown_tasks and len(context.unknown_tasks) < MOST_NAMES:
        context.unknown_tasks[outcome.task] = now
        log.warning("task unknown, retrying", queue=context.name, task=outcome.task, minutes=PATIENCE_MS // 60_000)
    wait = min(LONGEST_WAIT_MS, FIRST_WAIT_MS + max(0, now - met, now - since))
    error = f"{outcome.error}{_FIRST}{_moment(met)}{_LAST}{_moment(now)}"
    return oc.Unknown(outcome.task, error, round(wait))


def _moment(ms: float) -> str:
    return from_ms(int(ms)).isoformat(timespec="milliseconds")


def _met(stored: bytes | str | None) -> tuple[float, float] | None:
    """Return when the message was first and last met, ms, from its last error; None if that was another error."""
    text = stored.decode(errors="replace") if isinstance(stored, bytes) else stored or ""
    found = _MET.fullmatch(text)
    if found is None:
        return None
    try:
        first, last = (dt.datetime.fromisoformat(each).timestamp() * 1000 for each in (found[1], found[2] or found[1]))
    except ValueError:  # another program may have written it
        return None
    return first, last if found[2] else math.inf
