"""Queues: their counts, rates, troubles and consumers; and pausing and configuring them."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.model.configuration import Configuration, changes
from delayq.model.health import Trouble
from delayq.model.queue_stats import QueueStats
from delayq.model.settings import SETTINGS
from delayq.model.units import MAX_PAUSE_MS
from delayq.web import audit, job_work, path_params
from delayq.web.api.jobs import Job, begun
from delayq.web.api.operation import Operation
from delayq.web.api.values import Answer, Given, of
from delayq.web.forms import field
from delayq.web.poller import watch_of
from delayq.web.queue_list import PAGE, QueueListView
from delayq.web.routes import ACT, VIEW
from delayq.web.snapshot import QueueSnapshot

MOST_CONSUMERS = 1000


class QueueRates(Answer):
    """The rates over a span of time.

    Attributes:
        since: the start of the span.
        until: its end.
        failed_per_second: deliveries that did not end in an ack.
        died: the total number of messages that became dead letters.
        lateness_p50_seconds: half of the deliveries were at most this late; null if there were none.
        lateness_p99_seconds: 99 % of the deliveries were at most this late; null if there were none.
        handler_time_p50_seconds: half of the handlers took at most this long; null if there were none.
        handler_time_p99_seconds: 99 % of the handlers took at most this long; null if there were none.
    """

    since: dt.datetime
    until: dt.datetime
    sent_per_second: float
    delivered_per_second: float
    acked_per_second: float
    failed_per_second: float
    died: int
    lateness_p50_seconds: float | None
    lateness_p99_seconds: float | None
    handler_time_p50_seconds: float | None
    handler_time_p99_seconds: float | None


class QueueSummary(Answer):
    """A queue.

    Attributes:
        at: when it was counted, by the server's clock.
        scheduled: new messages that are not due yet.
        due: due messages that wait for a consumer.
        running: messages handed out to consumers.
        retrying: messages whose next attempt is not due yet.
        next_due_at: the earliest due time of a scheduled message, or null.
        oldest_due_at: the earliest due time of a due message, or null.
        paused_since: null while it is not paused.
        paused_until: when the pause ends by itself; null for never.
        alive_consumers: consumers seen in the last 30 seconds.
        rates: over the last minute or two; null if unknown.
        troubles: what is wrong with it, as the overview shows it.
        error: why it could not be read, or null; with an error, the counts are 0.
    """

    name: str
    at: dt.datetime
    scheduled: int
    due: int
    running: int
    retrying: int
    dead: int
    next_due_at: dt.datetime | None
    oldest_due_at: dt.datetime | None
    paused_since: dt.datetime | None
    paused_until: dt.datetime | None
    alive_consumers: int
    rates: QueueRates | None
    troubles: list[Trouble]
    error: str | None


class Queues(Answer):
    """A page of queues, by name.

    Attributes:
        total: the number of queues on the server.
        matched: the number of queues that match the query, on all pages.
        looked_at: the number of queues that were checked for trouble.
        troubled: the number of these that are in trouble.
        next: pass it as `start` to get the next page; null on the last page.
    """

    queues: list[QueueSummary]
    total: int
    matched: int
    looked_at: int
    troubled: int
    next: str | None


Counters = msgspec.defstruct(
    "Counters",
    [(name, int) for name in QueueStats.COUNTERS],
    bases=(Answer,),
    namespace={"__doc__": "The totals since the queue was created."},
)


class TaskRuns(Answer):
    """How the runs of a task ended, as consumers report them every 10 seconds.

    Attributes:
        task: its name; "other" for all tasks beyond the first 100 of a shard.
        acked: in an ack.
        failed: in an error after which the message is retried.
        dead: in an error that made the message a dead letter.
    """

    task: str
    acked: int
    failed: int
    dead: int


class Queue(Answer):
    """All details of a queue.

    Attributes:
        configuration: its stored settings, which apply to all programs.
        counters: the totals since it was created.
        tasks: the runs of its tasks since then, by name.
    """

    summary: QueueSummary
    configuration: Configuration
    counters: Counters  # type: ignore[valid-type]
    tasks: list[TaskRuns]


class HeldMessage(Answer):
    """A message that a consumer holds and has not settled."""

    id: str
    since: dt.datetime
    attempt: int


class Consumer(Answer):
    """A consumer, as of its last report.

    Attributes:
        concurrency: how many handlers it runs at once; 0 for a program that calls `receive`.
        handled: messages handled since it started.
        failed: of these, the deliveries that did not end in an ack.
        holds: the messages that it holds, the first 100.
        holds_count: the number of messages that it holds.
    """

    name: str
    host: str
    pid: int
    version: str
    seen_at: dt.datetime
    started_at: dt.datetime
    is_alive: bool
    concurrency: int
    handled: int
    failed: int
    holds: list[HeldMessage]
    holds_count: int


class Consumers(Answer):
    """The consumers seen in the last hour, by name, up to 1,000.

    Attributes:
        total: the number of consumers.
    """

    consumers: list[Consumer]
    total: int


class DueSpan(Answer):
    """How many messages fall due in a span of time.

    Attributes:
        starts_at: the start, inclusive.
        ends_at: the end, exclusive.
        pending: due for their first delivery, or sent back to wait.
        retry: due for their next attempt.
    """

    starts_at: dt.datetime
    ends_at: dt.datetime
    pending: int
    retry: int


class DueSpans(Answer):
    """The messages that fall due, span by span."""

    spans: list[DueSpan]


class Pause(Given):
    """How long to pause a queue.

    Attributes:
        for_seconds: the length of the pause; null to pause until you resume the queue.
    """

    for_seconds: Annotated[float, Meta(ge=0.001, le=MAX_PAUSE_MS / 1000)] | None = None


class Paused(Answer):
    """Whether a queue is paused.

    Attributes:
        paused_since: null while it is not paused.
        paused_until: when the pause ends by itself; null for never.
    """

    paused_since: dt.datetime | None
    paused_until: dt.datetime | None


Configure = msgspec.defstruct(
    "Configure",
    [(each.name, each.kind | UnsetType | None, UNSET) for each in SETTINGS.values()],
    bases=(Given,),
    namespace={
        "__doc__": "Settings that apply to all programs. Settings that you leave out stay; null removes a setting.\n\n"
        "Attributes:\n" + "".join(f"    {each.name}: {each.about}\n" for each in SETTINGS.values())
    },
)


class QueuesQuery(Given):
    """Which queues to list.

    Attributes:
        name: text in their names, in upper or lower case; empty for all.
        troubled: only queues in trouble, as far as they were checked.
        start: `next` of the previous page; empty for the first page.
        limit: queues per page.
    """

    name: str = ""
    troubled: bool = False
    start: str = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE


class DueQuery(Given):
    """The time to count.

    Attributes:
        window_seconds: the length of time from now.
        bucket_seconds: the length of each span; at most 500 spans.
    """

    window_seconds: Annotated[float, Meta(ge=1, le=366 * 86_400)] = 3600
    bucket_seconds: Annotated[float, Meta(ge=1, le=366 * 86_400)] = 300


async def list_queues(request: Request, query: QueuesQuery) -> Queues:
    """List a page of a server's queues, with their counts, rates and troubles."""
    view = QueueListView(name=query.name.strip(), troubled=query.troubled, start=query.start, rows=query.limit)
    await path_params.server_of(request).all_names("queue")  # the view of a browser need not be of all
    seen = await watch_of(request).now(view)
    if seen.error:
        raise HTTPException(503, seen.error)
    queues = [_summary(each) for each in seen.queues]
    return of(Queues, seen, queues=queues, matched=seen.page.matched, next=seen.page.following)


async def get_queue(request: Request) -> Queue:
    """Return the counts, rates, troubles and configuration of a queue."""
    queue = await path_params.queue_of(request)
    seen = await watch_of(request).look_at(queue.name)
    if seen.error:
        raise HTTPException(503, seen.error)
    tasks = [of(TaskRuns, runs, task=task) for task, runs in seen.stats.tasks.items()]
    counters = of(Counters, seen.stats)
    return Queue(summary=_summary(seen), configuration=await queue.configuration(), counters=counters, tasks=tasks)


async def list_consumers(request: Request) -> Consumers:
    """List the consumers of a queue, with the messages that they hold."""
    found = await (await path_params.queue_of(request)).consumers()
    consumers = [
        of(Consumer, each, holds=[of(HeldMessage, held) for held in each.holds]) for each in found[:MOST_CONSUMERS]
    ]
    return Consumers(consumers=consumers, total=len(found))


async def count_due(request: Request, query: DueQuery) -> DueSpans:
    """Count the messages that fall due soon, in spans of time."""
    queue = await path_params.queue_of(request)
    found = await queue.upcoming(query.window_seconds, query.bucket_seconds)
    return DueSpans(spans=[of(DueSpan, each) for each in found])


async def pause_queue(request: Request, body: Pause) -> Paused:
    """Pause a queue: running messages finish, no new ones start, and sending continues."""
    queue = await path_params.queue_of(request)
    async with audit.audited(request, "pause", queue=queue.name, seconds=body.for_seconds):
        await queue.pause(body.for_seconds)
    return of(Paused, await queue.stats())


async def resume_queue(request: Request) -> Paused:
    """Resume a paused queue."""
    queue = await path_params.queue_of(request)
    async with audit.audited(request, "resume", queue=queue.name):
        await queue.resume()
    return of(Paused, await queue.stats())


async def configure_queue(request: Request, body: Configure) -> Configuration:  # type: ignore[valid-type]
    """Change the limits, retries and ledger of a queue. Running programs notice it within a minute."""
    queue, given = await path_params.queue_of(request), msgspec.structs.asdict(body)
    wanted = {name: value for name, value in given.items() if value is not UNSET}
    for name, value in wanted.items():
        with field(name):
            changes(**{name: value})
    async with audit.audited(request, "configure", queue=queue.name, changes=[f"{k}: {v}" for k, v in wanted.items()]):
        await queue.configure(**wanted)
    return await queue.configuration()


async def examine_queue(request: Request) -> Job:
    """Check a queue with the doctor, as a job, without repairs."""
    job = job_work.start_examination(request, await path_params.queue_of(request), secrets.token_urlsafe())
    return await begun(job)


def _summary(seen: QueueSnapshot) -> QueueSummary:
    return of(
        QueueSummary,
        seen.stats,
        name=seen.name,
        alive_consumers=seen.alive,
        rates=of(QueueRates, seen.rates) if seen.rates else None,
        troubles=list(seen.troubles),
        error=seen.error or None,
    )


QUEUE = "/servers/{server}/queues/{queue}"

OPERATIONS = [
    Operation(VIEW, "/servers/{server}/queues", list_queues),
    Operation(VIEW, QUEUE, get_queue),
    Operation(VIEW, f"{QUEUE}/consumers", list_consumers),
    Operation(VIEW, f"{QUEUE}/due", count_due),
    Operation(ACT, f"{QUEUE}/pause", pause_queue, action="pause"),
    Operation(ACT, f"{QUEUE}/resume", resume_queue, action="resume"),
    Operation(ACT, f"{QUEUE}/configure", configure_queue, action="configure"),
    Operation(ACT, f"{QUEUE}/examine", examine_queue, action="examine", status=202),
]
