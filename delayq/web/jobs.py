"""The work of tasks: actions on selected or matching messages, requeues at a rate, purges, and examinations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from starlette.requests import Request

from delayq.aio import Queue
from delayq.model.actions import ACTIONS, Action
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
from delayq.web.request_context import who
from delayq.web.request_tasks import begin

MOST_FINDINGS = 200


class _Stopped(Exception):
    """Stops an examination."""


def selected(queue: Queue, act: Act, ids: Sequence[str], action: Action, state: State) -> Work:
    """Act on these messages.

    Args:
        action, state: name the outcomes.
    """

    async def work(task: BackgroundTask) -> None:
        outcomes = Counter((await queue.execute(actions.each, act, ids)).values())
        total = outcomes.total()
        task.tell(total, total, described(action, state, outcomes, total), done=outcomes[action.done])

    return work


def swept(queue: Queue, sweep: Sweep, action: Action | None, state: State) -> Work:
    """Act on all messages that a sweep finds, or count them.

    Args:
        action: of the sweep; None if it only counts.
        state: of its messages.
    """

    async def work(task: BackgroundTask) -> None:
        while not sweep.done and task.goes_on:
            told = await queue.execute(sweep.step)
            text, done = f"{told.matched:,} match.", None
            if action is not None:
                done = told.outcomes.get(action.done, 0)
                text = described(action, state, told.outcomes, told.matched) if told.outcomes else text
            task.tell(min(told.looked_at, told.total), told.total, text, done=done)
            await task.rest(0)
        if action is ACTIONS["cancel"]:
            await _collect(queue, task)

    return work


def redriven(queue: Queue, redrive: Redrive, dry_run: bool) -> Work:
    """Requeue dead letters."""
    became = ACTIONS["requeue"].words.became

    async def work(task: BackgroundTask) -> None:
        while not redrive.done and task.goes_on:
            told = await queue.execute(redrive.step)
            moved = "" if dry_run else f"{told.moved:,} {became}."
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
    became = ACTIONS["purge"].words.became

    async def work(task: BackgroundTask) -> None:
        done = 0
        for scripts in await queue.execute(QueueContext.opened):
            gone = 1
            while gone and done < most and task.goes_on:
                purge = scripts.purge(state, up_to, min(most - done, MAX_IDS))
                gone = unwrap((await queue.execute(round_trip, [purge]))[0])
                done += gone
                task.tell(done, most, f"{done:,} {became}.", done=done)
                await task.rest(0)
        of_most = f" of {most:,}" if done < most else ""
        task.tell(done, most, f"{done:,}{of_most} {became}.", done=done)
        await _collect(queue, task)

    return work


def start_examination(request: Request, queue: Queue, once: str) -> BackgroundTask:
    """Start a task that examines a queue, with an audit line at its end."""
    server = request.path_params["server"]
    task = BackgroundTask(server, queue.name, f"Examine queue {queue.name}", who(request), alone=True)
    line = {"who": task.who, "action": "examine", "server": task.server, "queue": queue.name, "task": task.id}
    begin(request, task, examined(queue), once, dict(line))
    return task


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


def described(action: Action, state: State, outcomes: Mapping[str, int], total: int) -> str:
    """Describe outcomes of messages that were in a state: ``3 of 5 rescheduled; 2 delivered meanwhile.``."""
    counts = sorted(outcomes.items(), key=lambda item: (item[0] != action.done, item[0]))
    first, *others = [(f"{count:,}", action.became(outcome, state)) for outcome, count in counts]
    parts = [f"{first[0]} of {total:,} {first[1]}", *map(" ".join, others)]
    return "; ".join(parts) + "."


async def _collect(queue: Queue, task: BackgroundTask) -> None:
    """Delete the payloads of discarded messages, as consumers also do, until it is stopped."""
    more = True
    while more and task.goes_on:
        found = await queue.execute(garbage.find)
        more = bool(found) and await queue.execute(_delete, found)
        await task.rest(0)


def _delete(_: QueueContext, found: garbage.Found) -> Operation[bool]:
    return garbage.delete(found)
