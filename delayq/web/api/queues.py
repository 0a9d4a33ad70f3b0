"""Queues: what each holds, how fast it is, what troubles it, who consumes; and pausing it."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Annotated, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.model.configuration import Configuration, changes
from delayq.model.health import Trouble
from delayq.model.rates import Rates
from delayq.operations.manage import MAX_PAUSE_MS
from delayq.web import audit, path_params
from delayq.web.api.operation import Operation
from delayq.web.api.tasks import Task, begun
from delayq.web.api.values import Answer, Given, Retries, of
from delayq.web.forms import field
from delayq.web.pages.server import start_examination
from delayq.web.poller import ServerPoller
from delayq.web.queue_list import PAGE, QueueListView
from delayq.web.snapshot import QueueSnapshot

MOST_CONSUMERS = 1000

Count: TypeAlias = Annotated[int, Meta(ge=1, le=1_000_000)]


class QueueRates(Answer):
    """What happened in a span of time.

    Attributes:
        since: the beginning of the span.
        until: its end.
        failed_per_second: deliveries that did not end in an ack.
        died: messages that became dead letters, in all.
        lateness_p50_seconds: at most so late were half of the hand-outs; null without any.
        lateness_p99_seconds: at most so late were 99 % of the hand-outs; null without any.
        handler_time_p50_seconds: at most so long ran half of the handlers; null without any.
        handler_time_p99_seconds: at most so long ran 99 % of the handlers; null without any.
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
    """A queue, as it was seen.

    Attributes:
        at: when it was counted, by the server's clock.
        scheduled: new messages that are not due yet.
        due: messages that are due and wait for a consumer.
        running: messages that are handed out.
        retrying: messages whose next attempt is not due yet.
        next_due_at: the earliest due time of a scheduled message, or null.
        oldest_due_at: the earliest due time of a message that is due and not handed out, or null.
        paused_since: null while it is not paused.
        paused_until: when the pause ends by itself; null for never.
        alive_consumers: consumers that were seen within the last 30 seconds.
        rates: of the last minute or two; null where nothing is known of it.
        troubles: what is wrong with it, as the overview says it.
        error: why it could not be read, or null; then the counts are 0.
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
        total: how many queues the server has.
        matched: how many of them all pages of this question list.
        looked_at: of how many it is known whether they are in trouble.
        troubled: how many of these are in trouble.
        next: give it as `start` for the next page; null on the last one.
    """

    queues: list[QueueSummary]
    total: int
    matched: int
    looked_at: int
    troubled: int
    next: str | None


class Counters(Answer):
    """What was counted since the queue was made."""

    sent: int
    replaced: int
    promoted: int
    delivered: int
    acked: int
    nacked: int
    released: int
    lease_lost: int
    died: int
    requeued: int
    rescheduled: int
    expired: int
    cancelled: int
    purged: int
    collected: int
    adjusted: int
    held_back: int


class Queue(Answer):
    """Everything that is known of a queue.

    Attributes:
        configuration: what is stored of it and holds for all that use it.
        counters: what was counted since it was made.
    """

    summary: QueueSummary
    configuration: Configuration
    counters: Counters


class HeldMessage(Answer):
    """A message that a consumer was handed and has not settled."""

    id: str
    since: dt.datetime
    attempt: int


class Consumer(Answer):
    """A consumer, as it was when it last told of itself.

    Attributes:
        concurrency: how many handlers it runs at the same time; 0 for a program that calls `receive`.
        handled: messages whose handling has ended, in this run.
        failed: of these, the deliveries that did not end in an ack.
        holds: what it had taken and not settled, the first 100.
        holds_count: how many there were in all.
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
    """The consumers that were seen within the last hour, by name, up to 1,000.

    Attributes:
        total: how many there are.
    """

    consumers: list[Consumer]
    total: int


class DueSpan(Answer):
    """How many messages fall due in a span of time.

    Attributes:
        starts_at: the beginning, inclusive.
        ends_at: the end, exclusive.
        pending: due for their first delivery, or sent back to wait.
        retry: due for their next attempt.
    """

    starts_at: dt.datetime
    ends_at: dt.datetime
    pending: int
    retry: int


class DueSpans(Answer):
    """What falls due, span by span."""

    spans: list[DueSpan]


class Pause(Given):
    """For how long to pause a queue.

    Attributes:
        for_seconds: until it resumes by itself; null for a pause that lasts until it is resumed.
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


class Configure(Given):
    """What is to hold for all that use a queue: what is left out stays, and null removes it.

    Attributes:
        rate: hand-outs in any span of time, at most, such as 100/s, 5/10s or 9/min.
        concurrency: messages that run at the same time, at most.
        concurrency_per_key: the same, of those that share a key.
        events: entries that the ledger keeps; null ends it.
        max_retries: deliveries after the first one, of messages that are sent without it.
        backoff: the waits before them, such as fixed:10s or exponential:base=10s,factor=3.
        max_dead: dead letters to keep, at most; the oldest go first.
    """

    rate: str | UnsetType | None = UNSET
    concurrency: Count | UnsetType | None = UNSET
    concurrency_per_key: Count | UnsetType | None = UNSET
    events: Annotated[int, Meta(ge=1, le=10000000)] | UnsetType | None = UNSET
    max_retries: Retries | UnsetType | None = UNSET
    backoff: str | UnsetType | None = UNSET
    max_dead: Count | UnsetType | None = UNSET


class QueuesQuery(Given):
    """Which queues to list.

    Attributes:
        name: text that their names contain, in upper or lower case; empty for all.
        troubled: only those in trouble, as far as they were looked at.
        start: `next` of the page before; empty for the first page.
        limit: queues of a page.
    """

    name: str = ""
    troubled: bool = False
    start: str = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE)] = PAGE


class DueQuery(Given):
    """Which span of time to count.

    Attributes:
        window_seconds: from now on.
        bucket_seconds: how long each span is; at most 500 of them.
    """

    window_seconds: Annotated[float, Meta(ge=1, le=366 * 86_400)] = 3600
    bucket_seconds: Annotated[float, Meta(ge=1, le=366 * 86_400)] = 300


async def list_queues(request: Request, query: QueuesQuery) -> Queues:
    """List the queues of a server, a page of them, with their counts, rates and troubles."""
    view = QueueListView(name=query.name.strip(), troubled=query.troubled, start=query.start, rows=query.limit)
    seen = await _watch(request).now(view)
    if seen.error:
        raise HTTPException(503, seen.error)
    queues = [_summary(each) for each in seen.queues]
    return of(Queues, seen, queues=queues, matched=seen.page.matched, next=seen.page.following)


async def get_queue(request: Request) -> Queue:
    """Return the counts, rates, troubles and configuration of a queue."""
    queue = await path_params.queue_of(request)
    seen = await _watch(request).look_at(queue.name)
    if seen.error:
        raise HTTPException(503, seen.error)
    return Queue(summary=_summary(seen), configuration=await queue.configuration(), counters=of(Counters, seen.stats))


async def list_consumers(request: Request) -> Consumers:
    """List the consumers of a queue, with what each of them holds."""
    found = await (await path_params.queue_of(request)).consumers()
    consumers = [
        of(Consumer, each, holds=[of(HeldMessage, held) for held in each.holds]) for each in found[:MOST_CONSUMERS]
    ]
    return Consumers(consumers=consumers, total=len(found))


async def count_due(request: Request, query: DueQuery) -> DueSpans:
    """Count what falls due within the next time, in spans."""
    queue = await path_params.queue_of(request)
    found = await queue.upcoming(query.window_seconds, query.bucket_seconds)
    return DueSpans(spans=[of(DueSpan, each) for each in found])


async def pause_queue(request: Request, body: Pause) -> Paused:
    """Pause a queue: what runs is finished, nothing more is handed out, and sending continues."""
    queue = await path_params.queue_of(request)
    async with audit.audited(request, "pause", queue=queue.name, seconds=body.for_seconds):
        await queue.pause(body.for_seconds)
    return of(Paused, await queue.stats())


async def resume_queue(request: Request) -> Paused:
    """Hand out the messages of a queue again."""
    queue = await path_params.queue_of(request)
    async with audit.audited(request, "resume", queue=queue.name):
        await queue.resume()
    return of(Paused, await queue.stats())


async def configure_queue(request: Request, body: Configure) -> Configuration:
    """Change what holds for all that use a queue: limits, retries and the ledger. Programs see it within a minute."""
    queue, given = await path_params.queue_of(request), msgspec.structs.asdict(body)
    wanted = {name: value for name, value in given.items() if value is not UNSET}
    for name, value in wanted.items():
        with field(name):
            changes(**{name: value})
    async with audit.audited(request, "configure", queue=queue.name, changes=[f"{k}: {v}" for k, v in wanted.items()]):
        await queue.configure(**wanted)
    return await queue.configuration()


async def examine_queue(request: Request) -> Task:
    """Let the doctor look at a queue, as a task, without repairs."""
    task = start_examination(request, await path_params.queue_of(request), secrets.token_urlsafe())
    return await begun(task)


def _watch(request: Request) -> ServerPoller:
    watches: dict[str, ServerPoller] = request.app.state.watches
    return watches[path_params.server_of(request).name]


def _summary(seen: QueueSnapshot) -> QueueSummary:
    return of(
        QueueSummary,
        seen.stats,
        name=seen.name,
        alive_consumers=seen.alive,
        rates=_rates(seen.rates) if seen.rates else None,
        troubles=list(seen.troubles),
        error=seen.error or None,
    )


def _rates(seen: Rates) -> QueueRates:
    return of(
        QueueRates,
        seen,
        sent_per_second=seen.sent,
        delivered_per_second=seen.delivered,
        acked_per_second=seen.acked,
        failed_per_second=seen.failed,
        lateness_p50_seconds=seen.lateness_p50,
        lateness_p99_seconds=seen.lateness_p99,
        handler_time_p50_seconds=seen.handler_time_p50,
        handler_time_p99_seconds=seen.handler_time_p99,
    )


QUEUE = "/servers/{server}/queues/{queue}"

OPERATIONS = [
    Operation("GET", "/servers/{server}/queues", list_queues),
    Operation("GET", QUEUE, get_queue),
    Operation("GET", f"{QUEUE}/consumers", list_consumers),
    Operation("GET", f"{QUEUE}/due", count_due),
    Operation("POST", f"{QUEUE}/pause", pause_queue, action="pause"),
    Operation("POST", f"{QUEUE}/resume", resume_queue, action="resume"),
    Operation("POST", f"{QUEUE}/configure", configure_queue, action="configure"),
    Operation("POST", f"{QUEUE}/examine", examine_queue, action="examine", status=202),
]
