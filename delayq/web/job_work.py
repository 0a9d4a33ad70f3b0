"""The work of jobs: actions on selected or matching messages, requeues at a rate, purges, and examinations."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.requests import Request

from delayq.aio import Queue
from delayq.aio.doctor import Step, examine
from delayq.model.actions import ACTIONS, Action, How
from delayq.model.choice import Choice
from delayq.model.placement import State
from delayq.operations import garbage
from delayq.operations.bulk import actions, purge
from delayq.operations.bulk.redrive import Redrive
from delayq.operations.bulk.sweep import Sweep
from delayq.web.background_jobs import BackgroundJob, Work
from delayq.web.request_context import who
from delayq.web.request_jobs import start

MOST_FINDINGS = 200


class _Stopped(Exception):
    """Stops an examination."""


def acting(
    queue: Queue, ids: Sequence[str], action: Action, how: How, now: dt.datetime
) -> Callable[[], Awaitable[dict[str, str]]]:
    """Return what acts on these messages when it is called, and returns the outcome for each; raises InvalidInput.

    Args:
        now: the server's clock; durations count from it.
    """
    act = actions.PREPARE[action.name](how, now).act
    return lambda: queue.execute(actions.each, act, ids)


def selected(queue: Queue, ids: Sequence[str], action: Action, how: How, now: dt.datetime, state: State) -> Work:
    """Act on these messages, which were in this state; raises InvalidInput."""
    act = acting(queue, ids, action, how, now)

    async def work(job: BackgroundJob) -> None:
        outcomes = Counter((await act()).values())
        total = outcomes.total()
        job.tell(total, total, described(action, state, outcomes, total), done=_changed(action, outcomes))

    return work


def swept(queue: Queue, state: State, choice: Choice, action: Action | None, how: How, now: dt.datetime) -> Work:
    """Act on all selected messages of a state, or only count them if there is no action; raises InvalidInput."""
    sweep = Sweep(state, choice, *([None] if action is None else actions.PREPARE[action.name](how, now)))

    async def work(job: BackgroundJob) -> None:
        while not sweep.done and job.goes_on:
            progress = await queue.execute(sweep.step)
            text, done = f"{progress.matched:,} match.", None
            if action is not None:
                done = _changed(action, progress.outcomes)
                text = described(action, state, progress.outcomes, progress.matched) if progress.outcomes else text
            job.tell(min(progress.looked_at, progress.total), progress.total, text, done=done)
            await job.rest(0)
        if action is ACTIONS["cancel"]:
            await _collect(queue, job)

    return work


def _changed(action: Action, outcomes: Mapping[str, int]) -> int:
    return sum(count for outcome, count in outcomes.items() if action.changes(outcome))


def redriven(queue: Queue, choice: Choice, how: How, dry_run: bool) -> Work:
    """Requeue the selected dead letters; raises InvalidInput."""
    redrive = Redrive(choice, how.delay, how.rate, dry_run)
    became = ACTIONS["requeue"].words.became

    async def work(job: BackgroundJob) -> None:
        while not redrive.done and job.goes_on:
            progress = await queue.execute(redrive.step)
            moved = "" if dry_run else f"{progress.moved:,} {became}."
            left = 0 if dry_run else progress.matched - progress.moved
            done = None if dry_run else progress.moved
            job.tell(progress.looked_at - left, progress.total, f"{progress.matched:,} match.", moved, done=done)
            await job.rest(redrive.pause)

    return work


async def extent(queue: Queue, state: State) -> tuple[int, int | None]:
    """Return how many messages a state holds, and the highest score, ms; None if it is empty."""
    return await queue.execute(purge.extent, state)


def purged(queue: Queue, state: State, most: int, up_to: int) -> Work:
    """Delete the messages in a state.

    Args:
        most: the maximum number of messages, the earliest of each shard first.
        up_to: the highest score to delete, ms.
    """
    became, purging = ACTIONS["purge"].words.became, purge.Purge(state, most, up_to)

    async def work(job: BackgroundJob) -> None:
        while not purging.done and job.goes_on:
            done = await queue.execute(purging.step)
            job.tell(done, most, f"{done:,} {became}.", done=done)
            await job.rest(0)
        done = purging.count
        of_most = f" of {most:,}" if done < most else ""
        job.tell(done, most, f"{done:,}{of_most} {became}.", done=done)
        await _collect(queue, job)

    return work


def start_examination(request: Request, queue: Queue, once: str) -> BackgroundJob:
    """Start a job that examines a queue, with an audit line at its end."""
    server = request.path_params["server"]
    job = BackgroundJob(server, queue.name, f"Examine queue {queue.name}", who(request), alone=True)
    return start(request, job, examined(queue), once, "examine")


def examined(queue: Queue) -> Work:
    """Check the queue with the doctor, without repairs."""

    async def work(job: BackgroundJob) -> None:
        findings: list[str] = []

        def on_step(step: Step) -> None:
            if not job.goes_on:
                raise _Stopped
            if step.finding is not None and len(findings) < MOST_FINDINGS:
                findings.append(f"{step.finding.severity}: {step.finding}")
            job.tell(step.done, step.total, *findings)

        try:
            report = await examine(queue, on_step=on_step)
        except _Stopped:
            return
        more = len(report.findings) - len(findings)
        healthy = "No problems found." if not report.findings else ""
        job.tell(report.messages, report.total, healthy, *findings, f"and {more:,} more" if more else "")

    return work


def described(action: Action, state: State, outcomes: Mapping[str, int], total: int) -> str:
    """Describe outcomes of messages that were in a state: ``3 of 5 rescheduled; 2 delivered meanwhile.``."""
    counts = sorted(outcomes.items(), key=lambda item: (item[0] != action.done, item[0]))
    first, *others = [(f"{count:,}", action.became(outcome, state)) for outcome, count in counts]
    parts = [f"{first[0]} of {total:,} {first[1]}", *map(" ".join, others)]
    return "; ".join(parts) + "."


async def _collect(queue: Queue, job: BackgroundJob) -> None:
    """Delete the payloads of discarded messages, as consumers also do, until it is stopped."""
    while job.goes_on and await queue.execute(garbage.collect_some):
        await job.rest(0)
