"""The work of tasks: actions on selected or matching messages, requeues at a rate, purges, and examinations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from delayq.aio import Queue
from delayq.model.placement import State
from delayq.operations import garbage
from delayq.operations.bulk import actions
from delayq.operations.bulk.actions import Act
from delayq.operations.bulk.redrive import Redrive
from delayq.operations.bulk.sweep import Sweep
from delayq.operations.doctor import examine
from delayq.operations.doctor.finding import Step
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, round_trip, unwrap
from delayq.protocol.queue_commands import MAX_IDS
from delayq.web.background_tasks import BackgroundTask, Work

MOST_FINDINGS = 200

_CANCELLED_IN_FLIGHT = "still running, but will not be retried"
DONE = {"cancelled", "buried", "rescheduled", "requeued"}
_BECAME = {
    "cancelled": "cancelled",
    "buried": "buried",
    "rescheduled": "rescheduled",
    "requeued": "scheduled again",
    "in_flight": "delivered meanwhile",
    "dead": "dead meanwhile",
    "unknown": "gone meanwhile",
    "left": "no longer dead, or without a payload",
}


class _Stopped(Exception):
    """Stops an examination."""


def selected(queue: Queue, act: Act, ids: Sequence[str], word: str = "cancelled") -> Work:
    """Act on these messages; `word` describes cancelled ones."""

    async def work(task: BackgroundTask) -> None:
        told = await queue.execute(actions.each, act, ids)
        became = Counter(told.values())
        task.tell(len(told), len(told), outcome(act, became, len(told), word), done=_done(became))

    return work


def swept(queue: Queue, sweep: Sweep, act: Act | None, word: str = "cancelled") -> Work:
    """Act on all messages that a sweep finds; without an act, count them.

    Args:
        word: describes cancelled messages.
    """

    async def work(task: BackgroundTask) -> None:
        while not sweep.done and task.goes_on:
            told = await queue.execute(sweep.step)
            became = outcome(act, told.outcomes, told.matched, word) if told.outcomes else f"{told.matched:,} match."
            done = None if act is None else _done(told.outcomes)
            task.tell(min(told.looked_at, told.total), told.total, became, done=done)
            await task.rest(0)
        if act is actions.cancelling:
            await _collect(queue, task)

    return work


def redriven(queue: Queue, redrive: Redrive, dry_run: bool) -> Work:
    """Requeue dead letters."""

    async def work(task: BackgroundTask) -> None:
        while not redrive.done and task.goes_on:
            told = await queue.execute(redrive.step)
            moved = "" if dry_run else f"{told.moved:,} scheduled again."
            left = 0 if dry_run else told.matched - told.moved
            done = None if dry_run else told.moved
            task.tell(told.looked_at - left, told.total, f"{told.matched:,} match.", moved, done=done)
            await task.rest(redrive.pause)

    return work


async def last_score(queue: Queue, state: State) -> int | None:
    """Return the highest score in a state, ms; None if it is empty."""
    shards = await queue.execute(QueueContext.opened)
    lasts = map(unwrap, await queue.execute(round_trip, [scripts.last(state) for scripts in shards]))
    return max((math.ceil(float(score)) for rows in lasts for _, score in rows), default=None)


def purged(queue: Queue, state: State, most: int, up_to: int) -> Work:
    """Delete the messages in a state.

    Args:
        most: the maximum number of messages, the earliest of each shard first.
        up_to: the highest score to delete, ms.
    """

    async def work(task: BackgroundTask) -> None:
        done = 0
        for scripts in await queue.execute(QueueContext.opened):
            gone = 1
            while gone and done < most and task.goes_on:
                purge = scripts.purge(state, up_to, min(most - done, MAX_IDS))
                gone = unwrap((await queue.execute(round_trip, [purge]))[0])
                done += gone
                task.tell(done, most, f"{done:,} purged.", done=done)
                await task.rest(0)
        purged = f"{done:,} of {most:,} purged." if done < most else f"{done:,} purged."
        task.tell(done, most, purged, done=done)
        await _collect(queue, task)

    return work


def examined(queue: Queue) -> Work:
    """Check the queue with the doctor, without repairs."""

    async def work(task: BackgroundTask) -> None:
        findings: list[str] = []

        def on_step(step: Step) -> None:
            if not task.goes_on:
                raise _Stopped
            if step.finding is not None and len(findings) < MOST_FINDINGS:
                findings.append(f"{step.finding.severity}: {step.finding}")
            task.tell(step.done, step.total, *findings)

        try:
            report = await queue.execute(examine.examine, False, on_step)
        except _Stopped:
            return
        more = len(report.findings) - len(findings)
        healthy = "No problems found." if not report.findings else ""
        task.tell(report.messages, report.total, healthy, *findings, f"and {more:,} more" if more else "")

    return work


def outcome(act: Act | None, became: Mapping[str, int], of: int, cancelled: str = "cancelled") -> str:
    """Describe the outcomes: ``3 of 5 rescheduled; 2 delivered meanwhile``."""
    in_flight = _CANCELLED_IN_FLIGHT if act is actions.cancelling else _BECAME["in_flight"]
    meant = _BECAME | {"cancelled": cancelled, "in_flight": in_flight}
    words = sorted(became.items(), key=lambda item: (item[0] not in DONE, item[0]))
    parts = [f"{count:,} {meant[word]}" for word, count in words]
    if parts:
        parts[0] = f"{words[0][1]:,} of {of:,} {meant[words[0][0]]}"
    return "; ".join(parts) + "." if parts else "Nothing to do."


def _done(became: Mapping[str, int]) -> int:
    return sum(count for word, count in became.items() if word in DONE)


async def _collect(queue: Queue, task: BackgroundTask) -> None:
    """Delete the payloads of discarded messages, as consumers also do, until it is stopped."""
    more = True
    while more and task.goes_on:
        found = await queue.execute(garbage.find)
        more = bool(found) and await queue.execute(_delete, found)
        await task.rest(0)


def _delete(_: QueueContext, found: garbage.Found) -> Operation[bool]:
    return garbage.delete(found)
