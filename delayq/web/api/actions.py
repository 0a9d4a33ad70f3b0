"""Actions on messages: on messages given by id, at once, or on all messages that match a filter, as a task."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request

from delayq.aio import Queue
from delayq.errors import InvalidInput
from delayq.model.text import printable_id
from delayq.operations.bulk import actions
from delayq.operations.bulk.sweep import count
from delayq.web import audit, jobs, path_params, render
from delayq.web.actions import MOST_IDS, ActionRequest, check_act
from delayq.web.api.messages import Filter
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.tasks import Task, begun
from delayq.web.api.values import Answer, Given, Moment, Name, Seconds, check_confirmed, check_due, check_times
from delayq.web.filters import MessageFilter
from delayq.web.forms import InvalidField, field
from delayq.web.pages.actions import start
from delayq.web.routes import ACT

Outcome = Literal["cancelled", "buried", "rescheduled", "requeued", "in_flight", "dead", "unknown", "left"]


class Ids(Given):
    """The messages to act on: 1 to 500."""

    ids: Annotated[list[Name], Meta(min_length=1, max_length=MOST_IDS)]


class IdsAt(Ids):
    """The messages to act on, and their new due time.

    Attributes:
        delay_seconds: from now; or give `at`.
    """

    delay_seconds: Seconds | None = None
    at: Moment | None = None


class IdsLater(Ids):
    """The dead letters to act on, and their new due time.

    Attributes:
        delay_seconds: from now.
    """

    delay_seconds: Seconds = 0


class Matching(Given):
    """The messages to act on: all in a state that match.

    Attributes:
        dry_run: only count the messages.
    """

    filter: Filter
    dry_run: bool = False


class MatchingAt(Matching):
    """The messages to act on, and their new due time.

    Attributes:
        delay_seconds: from now; or give `at`.
    """

    delay_seconds: Seconds | None = None
    at: Moment | None = None


class MatchingLater(Matching):
    """The dead letters to act on, and how fast to requeue them.

    Attributes:
        delay_seconds: from the requeue of each.
        rate: the maximum rate, such as 100/s or 5/10s; null for no limit.
    """

    delay_seconds: Seconds = 0
    rate: str | None = None


class Purge(Given):
    """What to delete.

    Attributes:
        confirm: the name of the queue.
    """

    state: Literal["pending", "ready", "retry", "dead"]
    confirm: str


class Outcomes(Answer):
    """The outcome for each message.

    Attributes:
        outcomes: by id. "in_flight": it is running; if you cancelled it, it finishes but is not retried. "left": it is
            no longer dead, or its payload is gone. "unknown": no message has this id.
        done: how many messages were changed.
    """

    outcomes: dict[str, Outcome]
    done: int


async def cancel_messages(request: Request, body: Ids) -> Outcomes:
    """Cancel messages for good. Running messages finish, but are not retried."""
    return await _named(request, "cancel", body.ids)


async def bury_messages(request: Request, body: Ids) -> Outcomes:
    """Move waiting messages to the dead letters."""
    return await _named(request, "bury", body.ids)


async def requeue_messages(request: Request, body: IdsLater) -> Outcomes:
    """Schedule dead letters again, with all their retries."""
    check_times(delay_seconds=body.delay_seconds)
    return await _named(request, "requeue", body.ids, delay=_seconds(body.delay_seconds))


async def reschedule_messages(request: Request, body: IdsAt) -> Outcomes:
    """Give waiting messages another due time. Their attempts still count."""
    return await _named(request, "reschedule", body.ids, when=_when(body.delay_seconds, body.at))


async def now_messages(request: Request, body: Ids) -> Outcomes:
    """Make waiting messages due now. Their attempts still count."""
    return await _named(request, "now", body.ids)


async def cancel_matching(request: Request, body: Matching) -> Task:
    """Cancel all messages in a state that match, as a task."""
    return await _matching(request, "cancel", body)


async def bury_matching(request: Request, body: Matching) -> Task:
    """Move all waiting messages in a state that match to the dead letters, as a task."""
    return await _matching(request, "bury", body)


async def requeue_matching(request: Request, body: MatchingLater) -> Task:
    """Schedule all matching dead letters again, as a task, optionally at a maximum rate."""
    check_times(delay_seconds=body.delay_seconds)
    return await _matching(request, "requeue", body, delay=_seconds(body.delay_seconds), rate=body.rate or "")


async def reschedule_matching(request: Request, body: MatchingAt) -> Task:
    """Give all messages in a state that match another due time, as a task."""
    return await _matching(request, "reschedule", body, when=_when(body.delay_seconds, body.at))


async def now_matching(request: Request, body: Matching) -> Task:
    """Make all messages in a state that match due now, as a task."""
    return await _matching(request, "now", body)


async def purge_queue(request: Request, body: Purge) -> Task:
    """Delete all messages that are in a state now, as a task."""
    queue = await path_params.queue_of(request)
    check_confirmed(body.confirm, "queue", queue.name)
    most, up_to = await queue.execute(count, [body.state]), await jobs.last_score(queue, body.state)
    deed = ActionRequest(act="purge", filter=MessageFilter(state=body.state), most=str(most), up_to=str(up_to or 0))
    return await begun(
        start(request, queue.name, deed, deed.work(queue, (await queue.stats()).at), secrets.token_urlsafe())
    )


async def _named(request: Request, act: str, ids: list[str], **how: str) -> Outcomes:
    queue = await path_params.queue_of(request)
    deed = ActionRequest(act=act, filter=MessageFilter(), ids=tuple(dict.fromkeys(ids)))
    deed = msgspec.structs.replace(deed, **how)
    doing, _ = deed.doing((await queue.stats()).at)
    async with audit.audited(request, act, queue=queue.name, ids=[*map(printable_id, deed.ids)]) as line:
        told: dict[str, Any] = await queue.execute(actions.each, doing, deed.ids)
        done = sum(word in jobs.DONE for word in told.values())
        line["told"] = f"{done:,} of {len(told):,}"
    return Outcomes(outcomes=told, done=done)


async def _matching(request: Request, act: str, body: Matching, **how: str) -> Task:
    queue = await path_params.queue_of(request)
    with field("filter.state"):
        check_act(act, body.filter.state)
    try:
        deed = msgspec.structs.replace(
            ActionRequest(act=act, filter=body.filter.meant(render.redaction(request)), dry=body.dry_run), **how
        )
        return await _begun(request, queue, deed)
    except InvalidField as error:
        name = error.field if error.field in how else f"filter.{error.field}"
        raise InvalidField(name, str(error)) from error


async def _begun(request: Request, queue: Queue, deed: ActionRequest) -> Task:
    work = deed.work(queue, (await queue.stats()).at)
    return await begun(start(request, queue.name, deed, work, secrets.token_urlsafe()))


def _seconds(delay: float) -> str:
    return f"{delay:.6f}"


def _when(delay: float | None, at: dt.datetime | None) -> str:
    """Return a due time as a form holds it; raises InvalidInput."""
    check_due(delay, at)
    if at is not None:
        return at.isoformat()
    if delay is None:
        raise InvalidInput("neither delay_seconds nor at is given: give one of them")
    return _seconds(delay)


MESSAGES = f"{QUEUE}/messages"

OPERATIONS = [
    Operation(ACT, f"{MESSAGES}/cancel", cancel_messages, action="cancel"),
    Operation(ACT, f"{MESSAGES}/bury", bury_messages, action="bury"),
    Operation(ACT, f"{MESSAGES}/requeue", requeue_messages, action="requeue"),
    Operation(ACT, f"{MESSAGES}/reschedule", reschedule_messages, action="reschedule"),
    Operation(ACT, f"{MESSAGES}/now", now_messages, action="now"),
    Operation(ACT, f"{MESSAGES}/cancel-matching", cancel_matching, action="cancel", status=202),
    Operation(ACT, f"{MESSAGES}/bury-matching", bury_matching, action="bury", status=202),
    Operation(ACT, f"{MESSAGES}/requeue-matching", requeue_matching, action="requeue", status=202),
    Operation(ACT, f"{MESSAGES}/reschedule-matching", reschedule_matching, action="reschedule", status=202),
    Operation(ACT, f"{MESSAGES}/now-matching", now_matching, action="now", status=202),
    Operation(ACT, f"{QUEUE}/purge", purge_queue, action="purge", status=202),
]
