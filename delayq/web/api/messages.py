"""Messages: the messages in a state, the results of a search, and the details of one message."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.errors import InvalidInput
from delayq.model.event import NEWEST, PLACE, Event
from delayq.model.message_info import MessageInfo
from delayq.model.placement import State
from delayq.model.result import ResultStatus, TaskResult
from delayq.model.text import is_foreign_id
from delayq.operations import results
from delayq.web import ledger_search, path_params, render
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.values import Answer, Given, HeaderValues, Moment, PayloadKind, header_values, of, payload_fields
from delayq.web.filters import MessageFilter, quoted, unquoted
from delayq.web.forms import field
from delayq.web.redaction import Redaction, in_turns
from delayq.web.routes import VIEW

LARGEST = 16 * 1024  # bytes of a payload that a list reads
MOST_LISTED = 200
MOST_FOUND = 200
SEARCH_SECONDS = 0.25  # of a request
LOOK_SECONDS = 0.25  # of a request that looks through the ledger


class HandlerProgress(Answer):
    """How far a handler is.

    Attributes:
        done: how much of the work is done.
        total: all of the work, or null.
        text: what the handler says.
    """

    done: int | float
    total: int | float | None
    text: str


class Message(Answer):
    """A message.

    Attributes:
        state: where it is; "deferred" if it is in the queue's lake.
        due_at: when its next delivery is due; null while it is running, dead or discarded.
        lease_until: when the lease of the running delivery ends, or null.
        died_at: when it died, or null.
        attempts: the number of attempts so far, including the running one.
        retries_used: the number of retries used since the last requeue.
        error: its last error, or null.
        reason: why it died, or null.
        cancelled: true if it is running and will not be retried.
        progress: what the handler of its running delivery has reported, or null.
        task: the task that it is for, or null.
        schedule: the schedule that it is an occurrence of, or null.
        slot: the time in its schedule, or null.
        group: the group that it waits, or waited, for, or null.
        member_of: the group that it belongs to until it ends, or null.
        timeout_seconds: the time limit of each run; null if its sender set none.
        payload_kind: "json" if the payload is in `payload`, "bytes" if it is in `payload_base64`, "unread" if it is too
            large for a list, "gone" if there is none.
        payload_bytes: the size of the payload (of an unread one, with its headers); null if it is gone.
        payload: JSON, exactly as it was sent.
        payload_base64: bytes, in base64.
    """

    id: str
    queue: str
    state: State | Literal["deferred"]
    due_at: dt.datetime | None
    lease_until: dt.datetime | None
    died_at: dt.datetime | None
    attempts: int
    retries_used: int
    error: str | None
    reason: str | None
    cancelled: bool
    progress: HandlerProgress | None
    created_at: dt.datetime | None
    expires_at: dt.datetime | None
    max_retries: int | None
    timeout_seconds: float | None
    task: str | None
    schedule: str | None
    slot: dt.datetime | None
    group: str | None
    member_of: str | None
    headers: HeaderValues
    payload_kind: PayloadKind
    payload_bytes: int | None
    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class ResultError(Answer):
    """Why an attempt of a task failed.

    Attributes:
        type: of the exception, with its module unless that is builtins; may be empty.
        text: of the exception.
        traceback: up to 8 KiB of its end; may be empty.
        reason: why the message died; empty if it did not.
    """

    type: str
    text: str
    traceback: str
    reason: str


class Result(Answer):
    """The result of a task: how it ended, or failed for now.

    Attributes:
        status: "done", "dead", "expired", or "retry" after an attempt that failed while retries are left.
        task: the task's name; null if it is unknown.
        arguments: those of the call, or null.
        value: what the task returned; null unless it is done.
        error: of the last attempt that failed, or null.
        created_at: when the message was sent, or null.
        started_at: when the message was first handed out, or null.
        last_attempted_at: when it was last handed out, or null.
        finished_at: when it ended; null for "retry".
        kept_until: when the result expires.
        attempts: the number of attempts.
        consumers: the names of those that ran it, in order.
    """

    status: ResultStatus
    task: str | None
    arguments: Any
    value: Any
    error: ResultError | None
    created_at: dt.datetime | None
    started_at: dt.datetime | None
    last_attempted_at: dt.datetime | None
    finished_at: dt.datetime | None
    kept_until: dt.datetime | None
    attempts: int
    consumers: list[str]


class Explained(Answer):
    """A message, why it has not been delivered, and the result of its task.

    Attributes:
        message: null if it is gone.
        why: a sentence that says why it has not been delivered, or what happened to it.
        result: null if none is kept, or not yet; if the message is gone, that of the latest one with this id.
    """

    message: Message | None
    why: str
    result: Result | None


class MessagePage(Answer):
    """Messages in a state, the earliest first.

    Attributes:
        total: the number of messages in the state.
        rank: the number of messages before this page.
        before: pass it as `before` to get the previous page; null on the first page.
        after: pass it as `after` to get the next page; null on the last page.
    """

    messages: list[Message]
    total: int
    rank: int
    before: str | None
    after: str | None


class Found(Answer):
    """The results of a search so far.

    Attributes:
        looked_at: the number of messages that this request has searched.
        total: the number of messages in the state.
        next: pass it as `after` to continue the search; null at the end.
    """

    messages: list[Message]
    looked_at: int
    total: int
    next: str | None


class LedgerEvent(Answer):
    """One event of a message, from the ledger.

    Attributes:
        event: what happened, such as sent, delivered, acked, nacked or died.
        attempt: the number of the attempt, from 1, or null.
        due_at: when the message was due, or is due next, or null.
        late_seconds: how much later than that it was promoted or delivered, or null.
        consumer: the consumer that received it, or null.
        reason: the error, the reason of death or similar, or null.
    """

    event: str
    at: dt.datetime
    attempt: int | None
    due_at: dt.datetime | None
    late_seconds: float | None
    consumer: str | None
    reason: str | None


class History(Answer):
    """The ledger's events of a message, the latest first.

    Attributes:
        next: pass it as `after` to search further back; null at the end of the ledger.
    """

    events: list[LedgerEvent]
    next: str | None


class PageQuery(Given):
    """Which messages to list.

    Attributes:
        after: `after` of the previous page.
        before: instead of `after`: `before` of the next page, or + for the last page.
        limit: messages per page.
    """

    state: State = "pending"
    after: str = ""
    before: str = ""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = 50


class Filter(Given):
    """A filter for the messages in a state; messages must match all given fields.

    Attributes:
        payload: text in the payload.
        header: a name and a value, such as tenant=acme.
        error: text in the last error.
        reason: why they died.
        bare: messages without an error.
        cause: the error of a cause of dead letters, with its numbers as #.
        older: dead letters that died at least this long ago, such as 1h30m, or before this time.
        newer: dead letters that died less than this long ago, or after this time.
        id_prefix: the start of the id.
        since: the earliest time; lists are sorted by this time.
        until: the latest time.
    """

    state: State = "pending"
    payload: str = ""
    header: str = ""
    error: str = ""
    reason: str = ""
    bare: bool = False
    cause: str = ""
    older: str = ""
    newer: str = ""
    id_prefix: str = ""
    since: Moment | None = None
    until: Moment | None = None

    def meant(self, redaction: Redaction) -> MessageFilter:
        """Return it as the pages use it; raises InvalidInput if it would reveal hidden values."""
        names = ("state", "payload", "header", "error", "reason", "bare", "older", "newer")
        known = {name: getattr(self, name) for name in names}
        known |= {"kind": self.cause, "prefix": self.id_prefix, "since": self.since or "", "until": self.until or ""}
        return MessageFilter(**known, redaction=redaction).redacted()


class SearchQuery(Filter):
    """What to search for, and in which state.

    Attributes:
        after: `next` of the previous answer.
    """

    after: str = ""


class HistoryQuery(Given):
    """Where to search in the ledger.

    Attributes:
        after: `next` of the previous answer.
    """

    after: str = ""


async def list_messages(request: Request, query: PageQuery) -> MessagePage:
    """List the messages in a state, the earliest first, a page at a time.

    For payloads over 16 KiB (with headers), only the size is given.
    """
    queue = await path_params.queue_of(request)
    after, before = (unquoted(each) if each else None for each in (query.after, query.before))
    before = "+" if query.before == " " else before  # an unquoted plus
    with field("before" if query.before else "after"):
        page = await queue.page(query.state, after=after, before=before, limit=query.limit, largest=LARGEST)
    redaction = render.redaction(request)
    return of(
        MessagePage,
        page,
        messages=await in_turns(lambda each: _message(each, redaction, page.sizes), page.messages),
        before=None if page.before is None else quoted(page.before),
        after=None if page.after is None else quoted(page.after),
    )


async def search_messages(request: Request, query: SearchQuery) -> Found:
    """Search a state for a quarter of a second, or until about 200 messages are found, and return where to continue."""
    queue, redaction = await path_params.queue_of(request), render.redaction(request)
    wanted = query.meant(redaction)
    wanted.choice()  # checks it
    with field("after"):
        after = unquoted(query.after) if query.after else None
        found = await wanted.find(queue, after, seconds=SEARCH_SECONDS, most=MOST_FOUND, largest=LARGEST)
    return of(
        Found,
        found,
        messages=await in_turns(lambda each: _message(each, redaction, found.sizes), found.messages),
        next=None if found.cursor is None else quoted(found.cursor),
    )


async def get_message(request: Request) -> Explained:
    """Return a message with its payload, why it has not been delivered, and the result of its task.

    A message that is gone is described as long as its task's result is kept, or the queue's ledger has entries for it.
    """
    queue, message_id = await path_params.queue_of(request), _id(request)
    info = await queue.get(message_id)
    result = await queue.execute(results.seen, message_id, info)
    events, after = ([], "") if info is not None else await _look(request, NEWEST)
    if info is None and result is None and not events and not after:
        raise HTTPException(404, f"Queue {queue.name} has no message {message_id}.")
    redaction, ledger = render.redaction(request), events[::-1] or None
    is_known = info is not None or result is not None or events
    why = await ledger_search.why(queue, message_id, ledger, redaction) if is_known else None
    unknown = f"{message_id} is not in queue {queue.name}; the ledger is long: request the message's history."
    seen = None if info is None else _message(info, redaction)
    return Explained(message=seen, why=why or unknown, result=None if result is None else _result(result, redaction))


async def get_history(request: Request, query: HistoryQuery) -> History:
    """Return the ledger's events of a message, the latest first, after a search of at most a quarter of a second."""
    if query.after and not PLACE.fullmatch(query.after):
        with field("after"):
            raise InvalidInput(f"after: {query.after!r} is not the next of an earlier answer")
    events, after = await _look(request, query.after or NEWEST)
    return History(events=[of(LedgerEvent, each) for each in events], next=after or None)


async def _look(request: Request, place: str) -> tuple[list[Event], str]:
    queue, message_id = await path_params.queue_of(request), _id(request)
    return await ledger_search.look(queue, message_id, place, LOOK_SECONDS, render.redaction(request))


def _id(request: Request) -> str:
    message_id: str = request.path_params["id"]
    if is_foreign_id(message_id):
        raise HTTPException(404, f"{message_id} is not an id that delayq can show: another program has written it.")
    return message_id


def _message(info: MessageInfo, redaction: Redaction, sizes: Mapping[str, int] | None = None) -> Message:
    """Return a message as an answer has it.

    Args:
        sizes: the stored bytes of each payload, for lists that leave some unread.
    """
    fields = payload_fields(info.envelope, redaction, (sizes or {}).get(info.id))
    shown = redaction.info(msgspec.structs.replace(info, envelope=None))
    fields |= {"task": info.task, "schedule": info.schedule, "slot": info.slot, "timeout_seconds": info.timeout}
    fields |= {"group": info.group}
    fields["progress"] = None if shown.progress is None else of(HandlerProgress, shown.progress)
    return of(Message, shown, headers=header_values(shown.headers), **fields)


def _result(result: TaskResult, redaction: Redaction) -> Result:
    shown = redaction.result(result)
    error = None if shown.error is None else of(ResultError, shown.error)
    return of(Result, shown, error=error, consumers=list(shown.consumers))


OPERATIONS = [
    Operation(VIEW, f"{QUEUE}/messages", list_messages),
    Operation(VIEW, f"{QUEUE}/search", search_messages),
    Operation(VIEW, f"{QUEUE}/messages/{{id}}", get_message),
    Operation(VIEW, f"{QUEUE}/messages/{{id}}/history", get_history),
]
