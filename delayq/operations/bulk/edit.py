"""Edit dead letters: requeue each with a corrected payload, headers or timeout, or as it was."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from delayq.errors import InvalidInput, ServerNotReady, ServerUnreachable, UnreadableEnvelope
from delayq.model.envelope import RAW, Headers, encode_envelope, parse
from delayq.model.progress import Progress
from delayq.model.units import Seconds, due_word, from_ms, lease_ms, timestamp_ms
from delayq.model.validation import check_id
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, execute, gather, unwrap


def edit(
    context: QueueContext,
    message_id: str,
    payload: Any = msgspec.UNSET,
    headers: Headers | None = None,
    delay: Seconds = 0,
    died_at: dt.datetime | None = None,
    timeout: Any = msgspec.UNSET,
) -> Operation[bool]:
    """Requeue a dead letter with another payload (UNSET to keep it), headers or timeout (UNSET to keep it).

    delayq's own headers and the time of sending stay, so that an occurrence of a schedule and a member of a group are
    still what they were.

    Args:
        died_at: when the dead letter that the caller saw died; None for any.

    Returns:
        False if it is not dead, or has died again. Then nothing was changed.

    Raises:
        InvalidInput: payload, headers and timeout are all missing, or one is out of range; or the payload is gone and
            no new one was given.
    """
    check_id(message_id)
    if payload is msgspec.UNSET and headers is None and timeout is msgspec.UNSET:
        raise InvalidInput("edit needs payload=, headers= or timeout=: requeue brings a dead letter back unchanged")
    due, settings = due_word(delay, None), context.settings
    timeout_ms = None if timeout in (None, msgspec.UNSET) else lease_ms(timeout, "timeout")
    kept = payload is msgspec.UNSET
    new = b"" if kept else payload
    encode_envelope(new, context.max_retries, None, headers, settings.max_payload)  # checks them before anything else
    yield from context.opened()
    scripts = context.shard(message_id)
    found = yield from execute(scripts.get(message_id))
    died_ms = found.scores.get("dead")
    if died_ms is None or (died_at is not None and died_at != from_ms(died_ms)):
        return False
    try:
        created_ms, old = parse(found.stored or b"")
    except UnreadableEnvelope as error:
        created_ms = None
        if kept:
            raise InvalidInput(f"the payload of message {message_id!r} is gone or unreadable: give payload=") from error
        envelope = encode_envelope(new, context.max_retries, None, headers, settings.max_payload, timeout_ms)
    else:
        if kept:
            payload = old.body if old.kind == RAW else msgspec.Raw(old.body)
        headers = old.sent_headers if headers is None else headers
        timeout_ms = old.timeout_ms if timeout is msgspec.UNSET else timeout_ms
        most = max(settings.max_payload, len(old.body)) if kept else settings.max_payload
        own = old.own_headers
        envelope = encode_envelope(payload, old.max_retries, old.expires_ms, headers, most, timeout_ms, own)
    return (yield from execute(scripts.edit(message_id, f"{died_ms:.17g}", due, envelope, created_ms)))


class SeenLetter(NamedTuple):
    """A dead letter as it was seen, and its new payload, headers or both; empty to requeue it unchanged."""

    id: str
    died_at: dt.datetime
    changes: Mapping[str, Any]


def requeue_seen(
    context: QueueContext, letters: Sequence[SeenLetter], delay: Seconds, progress: Progress
) -> Operation[list[bool | InvalidInput]]:
    """Requeue dead letters that have not died again since they were seen, in shared round trips.

    Returns:
        for each: whether it was still there, or why it could not be changed.
    """
    yield from context.opened()
    results = yield from gather(*[_requeue_seen(context, each, delay) for each in letters])
    progress.stored += results.count(True)
    progress.in_doubt = any(isinstance(each, ServerNotReady | ServerUnreachable) for each in results)
    return [each if isinstance(each, InvalidInput) else unwrap(each) for each in results]


def _requeue_seen(context: QueueContext, letter: SeenLetter, delay: Seconds) -> Operation[bool]:
    if letter.changes:
        return (yield from edit(context, letter.id, delay=delay, died_at=letter.died_at, **letter.changes))
    due, up_to = due_word(delay, None), timestamp_ms(letter.died_at)
    (count,) = yield from execute(context.shard(letter.id).requeue([letter.id], due, up_to))
    return count > 0
