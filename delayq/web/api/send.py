"""Sending messages, and editing dead letters, which sends them again."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.aio import Queue
from delayq.errors import PayloadNotSerializable, PayloadTooLarge
from delayq.model.delivery import OnConflict, Outgoing, SentMessage
from delayq.model.result import header_of_results
from delayq.model.task_name import header_of
from delayq.model.validation import check_id
from delayq.web import audit, path_params
from delayq.web.api.operation import Operation
from delayq.web.api.queues import QUEUE
from delayq.web.api.values import (
    Answer,
    Given,
    HeaderValues,
    Moment,
    Results,
    Retries,
    Seconds,
    Timeout,
    arguments,
    check_due,
    check_moments,
    check_times,
    headers_of,
    of,
    payload_of,
    prefixed,
    required_payload,
)
from delayq.web.forms import InvalidField, field
from delayq.web.message_fields import check_shown
from delayq.web.request_context import who
from delayq.web.routes import ACT

MOST_SENT = 1000
REPEATED_SECONDS = 3600
"""How long a request with a key can be repeated after it was cut off, even if its messages have been handled."""


class NewMessage(Given):
    """A message to send.

    Attributes:
        payload: any JSON, sent exactly as written; or give `payload_base64`.
        payload_base64: bytes, in base64.
        delay_seconds: until it is due; without it and `at`, it is due now.
        at: when it is due, instead of `delay_seconds`.
        id: 1 to 256 bytes; null for a random id. With an id, you can repeat the request safely.
        on_conflict: if the id exists: "ignore" keeps that message, "replace" replaces it with this one, "error" answers
            409.
        expires_in_seconds: drop the message if it has not started within this time.
        max_retries: retries after the first attempt; null for the queue's number.
        headers: bytes are {"base64": "…"}.
        unique_for_seconds: how long no other send with this field may use the same `id`.
        timeout_seconds: the time limit of each run; null for the consumer's limit.
        task: the task to run; the payload is then an object of its arguments.
        results_seconds: how long the result of the task is kept after its end; null to keep none.
    """

    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    delay_seconds: Seconds | None = None
    at: Moment | None = None
    id: str | None = None
    on_conflict: OnConflict = "ignore"
    expires_in_seconds: Seconds | None = None
    max_retries: Retries | None = None
    headers: HeaderValues = msgspec.field(default_factory=dict)
    unique_for_seconds: Seconds | None = None
    timeout_seconds: Timeout | None = None
    task: str | None = None
    results_seconds: Results | None = None


class NewMessages(Given):
    """Messages to send, at most 1,000."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=MOST_SENT)]


class CreateQuery(Given):
    """Whether the request may create its queue or topic.

    Attributes:
        create: create the queue or the topic if it does not exist; otherwise the answer is 404.
    """

    create: bool = False


class Sent(Answer):
    """The result of a send.

    Attributes:
        due_at: when it is due; for an existing message that was kept, that message's due time while it waits.
        created: false if a message with this id existed and was kept or replaced.
    """

    id: str
    due_at: dt.datetime
    created: bool


class SentMessages(Answer):
    """The result for each message, in the order of the request."""

    messages: list[Sent]


class Edit(Given):
    """The new content of a dead letter. Fields that you leave out stay.

    Attributes:
        payload: any JSON; or give `payload_base64`.
        payload_base64: bytes, in base64.
        headers: they replace all its headers.
        delay_seconds: until it is due.
        timeout_seconds: the time limit of each run; null for the consumer's limit.
        died_at: `died_at` of the dead letter that you have seen: if it has died again since, the answer is 409.
    """

    payload: msgspec.Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET
    headers: HeaderValues | UnsetType = UNSET
    delay_seconds: Seconds = 0
    timeout_seconds: Timeout | UnsetType | None = UNSET
    died_at: Moment | None = None


class Requeued(Answer):
    """A dead letter that is scheduled again."""

    id: str


async def send_message(request: Request, query: CreateQuery, body: NewMessage) -> Sent:
    """Send a message."""
    queue = await _queue(request, query)
    (message,) = _once(request, body, [_outgoing(body)])
    async with audit.audited(request, "send", queue=queue.name, id=message.id) as line:
        (done,) = await _sent(queue, [message])
        line["id"] = done.id
    return sent(done)


async def send_messages(request: Request, query: CreateQuery, body: NewMessages) -> SentMessages:
    """Send up to 1,000 messages. All are checked before the first is stored."""
    queue = await _queue(request, query)
    messages = [_outgoing(each, f"messages[{place}].") for place, each in enumerate(body.messages)]
    messages = _once(request, body, messages)
    async with audit.audited(request, "send", queue=queue.name, count=len(messages)):
        done = await _sent(queue, messages)
    return SentMessages(messages=[*map(sent, done)])


async def edit_dead_letter(request: Request, body: Edit) -> Requeued:
    """Requeue a dead letter with another payload, headers or timeout, and with all its retries."""
    queue, message_id = await path_params.queue_of(request), request.path_params["id"]
    with field("id"):
        check_id(message_id)
    check_times(delay_seconds=body.delay_seconds)
    check_moments(died_at=body.died_at)
    payload = payload_of(body.payload, body.payload_base64)
    headers = None if body.headers is UNSET else headers_of(body.headers)
    given = {"payload": payload is not UNSET, "headers": headers is not None}
    await check_shown(request, queue, message_id, [name for name, is_given in given.items() if is_given])
    async with audit.audited(request, "edit", queue=queue.name, id=message_id):
        done = await queue.dead.edit(
            message_id, payload, headers, delay=body.delay_seconds, died_at=body.died_at, timeout=body.timeout_seconds
        )
        if not done:
            info = await queue.get(message_id)
            again = info is not None and info.state == "dead"
            cause = "has died again since" if again else "is not a dead letter"
            raise HTTPException(409 if again else 404, f"{message_id} {cause}: nothing was changed.")
    return Requeued(id=message_id)


async def _queue(request: Request, query: CreateQuery) -> Queue:
    if not query.create:
        return await path_params.queue_of(request)
    return await path_params.server_of(request).queue(request.path_params["queue"])


def _once(request: Request, body: Given, messages: list[Outgoing]) -> list[Outgoing]:
    """Give messages without an id one that a repeat of the request gives them, too, if the request has a key.

    So if the connection to Redis breaks while they are sent, the repeat sends only the rest. The content is part of
    the id: another request with this key, after a restart of the dashboard, has other ids.
    """
    key = request.headers.get("idempotency-key")
    if key is None:
        return messages
    seed = hashlib.sha256(msgspec.json.encode((who(request), request.url.path, key, body))).digest()
    return [
        each
        if each.id is not None
        else msgspec.structs.replace(
            each,
            id=_id_of(seed, place),
            on_conflict="ignore",  # what has this id is the same message
            unique_for=REPEATED_SECONDS if each.unique_for is None else each.unique_for,
        )
        for place, each in enumerate(messages)
    ]


def _id_of(seed: bytes, place: int) -> str:
    digest = hashlib.blake2b(str(place).encode(), key=seed, digest_size=16).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


async def _sent(queue: Queue, messages: list[Outgoing]) -> list[SentMessage]:
    try:
        return await queue.send_many(messages)
    except (PayloadTooLarge, PayloadNotSerializable) as error:
        raise InvalidField("payload", str(error)) from error


def sent(done: SentMessage) -> Sent:
    """Return the result of a send as an answer has it."""
    return of(Sent, done)


def _outgoing(given: NewMessage, place: str = "") -> Outgoing:
    """Return the message to send; raises InvalidField.

    Args:
        place: its place in the request, a prefix of field names.
    """
    with prefixed(place):
        check_due(given.delay_seconds, given.at)
        check_times(expires_in_seconds=given.expires_in_seconds, unique_for_seconds=given.unique_for_seconds)
        if given.id is not None:
            with field("id"):
                check_id(given.id)
        payload = required_payload(given.payload, given.payload_base64)
        with field("task"):
            header_of(given.task, payload)
        with field("results_seconds"):
            header_of_results(given.results_seconds, given.task)
        options = arguments(given, "payload", "payload_base64", "headers")
        return Outgoing(payload, headers=headers_of(given.headers) or None, **options)


OPERATIONS = [
    Operation(ACT, f"{QUEUE}/messages", send_message, action="send"),
    Operation(ACT, f"{QUEUE}/messages/batch", send_messages, action="send"),
    Operation(ACT, f"{QUEUE}/messages/{{id}}/edit", edit_dead_letter, action="edit"),
]
