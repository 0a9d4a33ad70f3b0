"""Send messages: from encoded to pending."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias

from delayq.errors import DelayqError, DuplicateMessage, InvalidInput, NotReplicated, QueueFull
from delayq.model.delivery import Outgoing, SentMessage
from delayq.model.middleware import Sending
from delayq.model.progress import Progress
from delayq.model.show import plural, show_ranges
from delayq.model.units import from_ms
from delayq.model.validation import is_whole
from delayq.operations import configure, schedule_chain
from delayq.operations.byte_budget import UP_BYTES, UP_CALL_BYTES, trips
from delayq.operations.encode import EncodedMessage, encode_all, listed, no_outgoing
from delayq.operations.inspect import find_all
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command, Raw, identity
from delayq.protocol.operation import Operation, gather, unwrap
from delayq.protocol.queue_commands import QueueCommands

MAX_SENT = 100  # messages in a call: with ten million waiting, a new key and a place among them take up to 50 µs
CALLS_A_TRIP = 32  # the server works on the first while the last are packed
REPLICA_TIMEOUT_MS = 3000  # below the client's socket timeout, which would look like a lost connection
EXISTED = -1
_NO_TIME = from_ms(0)
MAX_REPLICAS = 1000
SendEncoded: TypeAlias = Callable[[QueueContext, Sequence[EncodedMessage], int], Operation[list[SentMessage]]]
Sent: TypeAlias = list[SentMessage | int | None]  # None where the id existed, max_length where the queue was full
_WeighedCall: TypeAlias = tuple[tuple[Command[Sent], Sequence[int]], int]
"""A call with the positions of its messages, and its bytes."""


def send_many(
    context: QueueContext,
    outgoing: Iterable[Outgoing],
    wait_replicas: int = 0,
    is_batch: bool = True,
    send: SendEncoded | None = None,
) -> Operation[list[SentMessage]]:
    """Send messages, within the queue's middleware; the results are in the order of the messages.

    All messages are checked before any is sent. Each one is stored completely or not at all. If the server fails during
    the send, some messages may be stored and others not.

    Args:
        is_batch: passed to middleware.
        send: sends the checked messages; None for `send_encoded`.

    Raises:
        InvalidInput: for any of the messages; none was sent.
        QueueFull: some of them exceed `max_length`; all others were sent.
        DuplicateMessage: on_conflict="error" and an id existed; all others were sent.
        NotReplicated
    """
    check_replicas(wait_replicas)
    send = send or send_encoded

    def encode_and_send(messages: Sequence[Outgoing]) -> Operation[list[SentMessage]]:
        return (yield from send(context, (yield from _encoded(context, messages)), wait_replicas))

    return (yield from within_middleware(context, listed(outgoing), encode_and_send, is_batch))


def within_middleware(
    context: QueueContext,
    messages: list[Outgoing],
    send: Callable[[Sequence[Outgoing]], Operation[list[SentMessage]]],
    is_batch: bool = True,
) -> Operation[list[SentMessage]]:
    """Send messages within the queue's middleware, which may replace each by another one."""
    if not context.middleware.has_sends:
        return (yield from send(messages))
    sending = Sending(context.name, messages, is_batch)
    for message in sending.messages:
        if not isinstance(message, Outgoing):
            raise no_outgoing(message)
    count = len(sending.messages)
    with context.middleware.sending(sending):
        if len(sending.messages) != count:
            raise InvalidInput(
                f"middleware turned {plural(count, 'message')} into {len(sending.messages)}: replace each by "
                "exactly one"
            )
        sent = yield from send(sending.messages)
        sending.sent = list(sent)
    return sent


def _encoded(context: QueueContext, messages: Sequence[Outgoing]) -> Operation[list[EncodedMessage]]:
    """Check messages, then encode them with the queue's own retries, which are read from Redis if needed."""
    retries, encoded = context.max_retries, encode_all(context, messages)
    if encoded and not context.is_open:
        yield from context.opened(create=True)
        if context.max_retries != retries:
            encoded = encode_all(context, messages)
    return encoded


def send_encoded(
    context: QueueContext, encoded: Sequence[EncodedMessage], wait_replicas: int = 0, call_bytes: float = 0
) -> Operation[list[SentMessage]]:
    """Send messages that have been checked; otherwise as `send_many`.

    Args:
        call_bytes: the most bytes of several messages in one call; 0 for a bound that suits the server.
    """
    results = yield from send_each(context, encoded, wait_replicas, call_bytes)
    return all_sent(context, encoded, results)


def send_each(
    context: QueueContext, encoded: Sequence[EncodedMessage], wait_replicas: int = 0, call_bytes: float = 0
) -> Operation[list[SentMessage | int]]:
    """Send as `send_encoded` does; return `max_length` for messages that the queue had no room for."""
    if not encoded:
        return []
    yield from prepared(context)
    if len(encoded) == 1 and not wait_replicas:
        return (yield from _send_one(context, encoded))
    results: Sent = [None] * len(encoded)
    call_bytes = call_bytes or (UP_BYTES if wait_replicas else UP_CALL_BYTES)  # replicas confirm one call at a time
    calls = _calls(context, encoded, bool(wait_replicas), call_bytes)
    progress = Progress(f"of {len(encoded):,} messages are stored")
    with progress.explained() if len(calls) > 1 else nullcontext():  # one call stores all or nothing
        if wait_replicas:
            yield from _send_confirmed(context, encoded, calls, wait_replicas, results, progress)
        else:
            yield from _send_in_trips(context, calls, results, progress)
    return (yield from _completed(context, encoded, results))


def _send_one(context: QueueContext, encoded: Sequence[EncodedMessage]) -> Operation[list[SentMessage | int]]:
    """Send a single message, as most calls do: with fewer steps than several."""
    scripts = context.only_shard or context.shard(encoded[0].id)
    (results,) = yield [_call(scripts, encoded, whole=False)]
    if isinstance(results, DelayqError):
        raise results
    if results[0] and encoded[0].on_conflict != "replace":
        return results  # type: ignore[no-any-return]  # it is new, or the queue is full
    return (yield from _completed(context, encoded, results))


def _completed(
    context: QueueContext, encoded: Sequence[EncodedMessage], results: Sent
) -> Operation[list[SentMessage | int]]:
    """Fill in the results of messages that existed, and continue the schedules of those that were replaced."""
    if None in results:
        yield from _find_existing(context, encoded, range(len(encoded)), results)
    if replaced := [each.id for each in encoded if each.on_conflict == "replace"]:
        yield from schedule_chain.go_on(context, replaced)
    return results  # type: ignore[return-value]  # none of them is None now


def send_new(
    context: QueueContext, encoded: Sequence[EncodedMessage], progress: Progress | None = None
) -> Operation[list[bool]]:
    """Send messages that have been checked; return which were new. Existing ones are not read. Raises QueueFull."""
    results: Sent = [None] * len(encoded)
    if encoded:
        yield from prepared(context)
        yield from _send_in_trips(context, _calls(context, encoded, whole=False), results, progress or Progress(""))
        _raise_full(context, encoded, results)
    return [result is not None for result in results]


def prepared(context: QueueContext) -> Operation[None]:
    if not context.is_open:
        yield from context.opened(create=True)
    if context.wishes.left:
        yield from configure.declare(context)


def _send_in_trips(
    context: QueueContext, calls: Iterable[_WeighedCall], results: Sent, progress: Progress
) -> Operation[None]:
    failed: dict[str, DelayqError] = {}  # by the key of a shard that is unavailable
    for trip in trips(calls, CALLS_A_TRIP):
        chosen = [each for each in trip if each[0].key not in failed] if failed else trip
        if not chosen:
            continue
        progress.in_doubt = True
        replies = yield [call for call, _ in chosen]
        progress.note([positions for _, positions in chosen], replies)
        progress.in_doubt |= bool(failed)
        for (call, positions), reply in zip(chosen, replies, strict=True):
            if context.outlives(reply):
                failed[call.key] = reply
            else:
                _note(positions, unwrap(reply), results, progress)
    _raise_first(failed, progress)


def send_shared(
    context: QueueContext, encoded: Sequence[EncodedMessage]
) -> Operation[Sequence[SentMessage | DelayqError]]:
    """Send messages of several senders to an open queue; for each, return its result or the error that concerns it.

    An error in one call does not affect senders with messages in another.
    """
    if context.wishes.left:
        yield from prepared(context)
    message = encoded[0]
    if len(encoded) == 1 and context.may_send_one and not message.named:
        scripts = context.only_shard or context.shard(message.id)
        (due,) = yield [scripts.send_one(message.id, f"{message.due}", message.envelope)]
        if unwrap(due) >= 0:
            return [SentMessage(message.id, from_ms(due), True)]
        context.may_send_one = False  # until the record is read again, even if it was the id that existed
    results: list[Any] = [None] * len(encoded)
    if len(encoded) == 1:
        results = yield from _send_one(context, encoded)
    else:
        groups = [group for _, group, _ in _groups(context, encoded)]
        sents = yield from gather(*[send_each(context, [encoded[i] for i in group]) for group in groups])
        for group, sent in zip(groups, sents, strict=True):
            for i, position in enumerate(group):
                results[position] = sent if isinstance(sent, DelayqError) else sent[i]
    for position, result in enumerate(results):
        if isinstance(result, int):
            results[position] = _full(context, [encoded[position]], [result])
    return results


def _send_confirmed(
    context: QueueContext,
    encoded: Sequence[EncodedMessage],
    calls: Iterable[_WeighedCall],
    replicas: int,
    results: Sent,
    progress: Progress,
) -> Operation[None]:
    failed: dict[str, DelayqError] = {}  # by the key of a shard that is unavailable
    for (call, positions), _ in calls:
        if call.key in failed:
            continue
        try:
            yield from _send_call_confirmed(context, encoded, call, positions, replicas, results, progress)
        except DelayqError as error:
            if context.outlives(error):
                failed[call.key] = error
                continue
            progress.in_doubt |= bool(failed)
            if failed and isinstance(error, NotReplicated):  # it would say that these messages are not stored
                raise next(iter(failed.values())) from error
            raise
    _raise_first(failed, progress)


def _send_call_confirmed(
    context: QueueContext,
    encoded: Sequence[EncodedMessage],
    call: Command[Sent],
    positions: Sequence[int],
    replicas: int,
    results: Sent,
    progress: Progress,
) -> Operation[None]:
    confirm = context.shard(encoded[positions[0]].id).confirm()
    progress.in_doubt = True
    reply, _, confirmed = yield [call, confirm, Command(call.key, ("WAIT", replicas, REPLICA_TIMEOUT_MS), identity)]
    progress.note([positions], [reply])
    progress.in_doubt |= isinstance(confirmed, DelayqError)
    _note(positions, unwrap(reply), results, progress)
    count = unwrap(confirmed)
    yield from _find_existing(context, encoded, positions, results)
    ids = [encoded[position].id for position in positions if not isinstance(results[position], int)]
    if ids and count < replicas:
        raise _not_replicated(f"{count} of {replicas}", ids, results)


def _raise_first(failed: Mapping[str, DelayqError], progress: Progress) -> None:
    """Raise the error of a shard that is unavailable, if there is one; the messages for other shards are stored."""
    for error in failed.values():
        progress.in_doubt = True
        raise error


def _not_replicated(confirmed: str, ids: list[str], results: Sent) -> NotReplicated:
    sent = [result for result in results if isinstance(result, SentMessage)]
    unsent = [position for position, result in enumerate(results) if not isinstance(result, SentMessage)]
    names = f"{', '.join(ids[:3])}{'…' if len(ids) > 3 else ''}"
    said = "the message is stored on the master: send again with the same id (see `sent`) once replicas are back"
    if len(results) > 1:
        said = (
            f"{len(sent)} of {len(results)} messages are stored on the master (`sent`), {len(ids)} of them unconfirmed "
            "(`unconfirmed`): send these again with the same ids once replicas are back"
        )
    if unsent:
        said += f", and the {len(unsent)} that are not stored (positions in `unsent`)"
    text = f"{confirmed} replicas confirmed {names} within {REPLICA_TIMEOUT_MS // 1000} s; {said}"
    return NotReplicated(text, sent, ids, unsent)


def _note(positions: Sequence[int], sent: Sent, results: Sent, progress: Progress) -> None:
    for position, result in zip(positions, sent, strict=True):
        results[position] = result
        if isinstance(result, int):
            progress.stored -= 1


def check_replicas(wait_replicas: int) -> None:
    """Raise InvalidInput unless `wait_replicas` is a whole number from 0 to 1,000."""
    if not is_whole(wait_replicas) or not 0 <= wait_replicas <= MAX_REPLICAS:
        raise InvalidInput(f"wait_replicas {wait_replicas!r} is not a whole number from 0 to {MAX_REPLICAS:,}")


def _calls(
    context: QueueContext, encoded: Sequence[EncodedMessage], whole: bool, most_bytes: float = UP_CALL_BYTES
) -> list[_WeighedCall]:
    """Group messages into bounded calls to one shard with distinct ids; yield each with its positions and bytes."""
    return [
        ((_call(scripts, [encoded[i] for i in group], whole), group), size)
        for scripts, group, size in _groups(context, encoded, most_bytes)
    ]


def _call(scripts: QueueCommands, messages: Sequence[EncodedMessage], whole: bool) -> Command[Sent]:
    first = messages[0]
    if first.on_conflict == "replace":
        return scripts.replace(first.id, first.due, first.envelope, partial(_replaced, first.id), whole)
    # If the call were repeated automatically, a message would be reported as a duplicate of itself.
    repeats = not first.named or all(message.on_conflict != "error" for message in messages)
    read = partial(_created, messages)
    if first.unique_ms:
        reserving = [(message.id, f"{message.due}", message.envelope, message.unique_ms) for message in messages]
        marks = [message.mark or message.id for message in messages] if first.mark else ()
        return scripts.send_unique(reserving, whole, repeats, read, marks)
    triples = [(message.id, f"{message.due}", message.envelope) for message in messages]
    return scripts.send(triples, first.named, whole, repeats, read)


def _replaced(message_id: str, reply: list[int]) -> Sent:
    due, created = reply
    if due < 0:
        return [EXISTED - due]
    return [SentMessage(message_id, from_ms(due), bool(created))]


def _created(messages: Sequence[EncodedMessage], dues: list[int]) -> Sent:
    sent: Sent = []
    last, due_at = EXISTED, _NO_TIME
    for message, due in zip(messages, dues, strict=True):
        if due < 0:
            sent.append(None if due == EXISTED else EXISTED - due)
            continue
        if due != last:  # most often it is the same for all
            last, due_at = due, from_ms(due)
        sent.append(tuple.__new__(SentMessage, (message.id, due_at, True)))  # half the price of SentMessage(…)
    return sent


def _groups(
    context: QueueContext, encoded: Sequence[EncodedMessage], most_bytes: float = UP_CALL_BYTES
) -> Iterator[tuple[QueueCommands, Sequence[int], int]]:
    """Group messages into calls, with their bytes, keeping the order within a shard; some need a call of their own."""
    for scripts, positions in context.by_shard(range(len(encoded)), lambda position: encoded[position].id):
        start = size = 0
        first = encoded[positions[0]]
        lone, unique = first.goes_alone, first.unique_ms > 0
        ids: set[str] = set()
        for i, position in enumerate(positions):
            message = encoded[position]
            weight = len(message.envelope)
            alone = lone or message.on_conflict == "replace" or (message.unique_ms > 0) != unique
            full = i - start >= MAX_SENT or size + weight > most_bytes
            if i > start and (full or alone or message.named != first.named or message.id in ids):
                yield scripts, positions[start:i], size
                start, size, first, lone = i, 0, message, message.goes_alone
                unique = message.unique_ms > 0
                ids.clear()
            size += weight
            if message.named:
                ids.add(message.id)
        yield scripts, positions[start:], size


def _find_existing(
    context: QueueContext, encoded: Sequence[EncodedMessage], positions: Sequence[int], results: Sent
) -> Operation[None]:
    existing = [position for position in positions if results[position] is None]
    found = yield from find_all(context, [encoded[position].id for position in existing])
    for position, result in zip(existing, found, strict=True):
        message, scores = encoded[position], result.scores
        due = next((scores[state] for state in ("pending", "ready", "retry") if state in scores), None)
        # An existing random id is ours: an earlier try got through before the connection broke.
        results[position] = SentMessage(message.id, from_ms(due or asked_ms(context, message.due)), not message.named)


def asked_ms(context: QueueContext, due: Raw) -> float:
    """Return the time, ms, for which a message was sent, by this machine's clock."""
    now = context.clock() or time.time() * 1000
    return float(now) + int(due) if isinstance(due, str) else float(due)


def all_sent(
    context: QueueContext, encoded: Sequence[EncodedMessage], results: Sequence[SentMessage | int]
) -> list[SentMessage]:
    """Return the results of `send_each`.

    Raises:
        QueueFull: the queue had no room for some of the messages.
        DuplicateMessage: a message with on_conflict="error" existed.
    """
    for result in results:
        if isinstance(result, int) or not result.created:
            _raise_full(context, encoded, results, are_all=True)
            _raise_duplicates(encoded, results)  # type: ignore[arg-type]  # all were sent
            break
    return results  # type: ignore[return-value]


def _raise_full(
    context: QueueContext,
    encoded: Sequence[EncodedMessage],
    results: Sequence[SentMessage | int | None],
    are_all: bool = False,
) -> None:
    if any(isinstance(result, int) for result in results):
        raise _full(context, encoded, results, are_all)


def _full(
    context: QueueContext,
    encoded: Sequence[EncodedMessage],
    results: Sequence[SentMessage | int | None],
    are_all: bool = False,
) -> QueueFull:
    """Return the error; if the messages are all that a caller has given, its text names their positions."""
    unsent = [position for position, result in enumerate(results) if isinstance(result, int)]
    ids = [encoded[position].id for position in unsent]
    max_length: Any = results[unsent[0]]
    said = "the message was not stored"
    if len(results) > 1:
        names = f"{', '.join(map(repr, ids[:3]))}{'…' if len(ids) > 3 else ''}"
        where = f"; positions from 0: {show_ranges(unsent)}" if are_all else ""
        said = f"{len(unsent):,} of {plural(len(results), 'message')} were not stored ({names}{where}), all others were"
    remedy = "send again once messages have been handled, or configure a higher max_length"
    text = f"queue {context.name} is full, with max_length {max_length:,}: {said}; {remedy}"
    return QueueFull(text, [each for each in results if isinstance(each, SentMessage)], unsent, ids, max_length)


def _raise_duplicates(encoded: Sequence[EncodedMessage], results: Sequence[SentMessage]) -> None:
    duplicates = [
        message.id
        for message, result in zip(encoded, results, strict=True)
        if message.on_conflict == "error" and not result.created
    ]
    if duplicates:
        names = f"{', '.join(map(repr, duplicates[:5]))}{'…' if len(duplicates) > 5 else ''}"
        others = "nothing was changed" if len(encoded) == 1 else "it was left unchanged, and all others were sent"
        raise DuplicateMessage(
            f'message id {names} exists already: {others}; use on_conflict="ignore" or "replace", or another id',
            results,
        )
