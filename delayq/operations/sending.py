"""Sending: from a payload and its options to pending."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, get_args

import msgspec

from delayq.calls import Call, Raw, Steps, as_is, expect
from delayq.envelope import seal
from delayq.errors import DuplicateMessage, InvalidInput, InvalidTime, NotReplicated
from delayq.message import OnConflict, Outgoing, SentMessage
from delayq.names import check_id, new_ids
from delayq.operations.core import Core, check_retries, is_whole
from delayq.operations.inspecting import find_all
from delayq.scripts import MAX_IDS, Scripts
from delayq.times import delay_ms, from_ms, timestamp_ms

MAX_CALL_BYTES = 4 * 1024 * 1024  # of envelopes in a call: Redis does nothing else while it copies them
SHARED_BYTES = 64 * 1024  # a larger message would hold up those that share its call
CALLS_A_TRIP = 16  # the server works on the first while the last are packed
REPLICA_TIMEOUT_MS = 3000  # less than the client's socket timeout, which would end the wait as a lost connection
EXISTED = -1
MAX_REPLICAS = 1000
Sent: TypeAlias = list[SentMessage | None]  # None where the id existed
_ON_CONFLICT = get_args(OnConflict)


class Sealed(msgspec.Struct, frozen=True):
    """A message that is ready to go out."""

    id: str
    due: Raw
    envelope: bytes
    on_conflict: OnConflict
    named: bool


def send_many(core: Core, outgoing: Iterable[Outgoing], wait_replicas: int = 0) -> Steps[list[SentMessage]]:
    """Send messages; the results stand in their order.

    Everything is checked before anything is sent. Each message is wholly in or not at all; a failure of the server
    in the middle leaves those of earlier calls in.

    Raises:
        InvalidInput: for any of the messages; none was sent.
        DuplicateMessage: on_conflict="error" and an id existed; all others were sent.
        NotReplicated
    """
    check_replicas(wait_replicas)
    return (yield from send_sealed(core, seal_all(core, outgoing), wait_replicas))


def send_sealed(core: Core, sealed: Sequence[Sealed], wait_replicas: int = 0) -> Steps[list[SentMessage]]:
    """Send messages that have been checked; otherwise as `send_many`."""
    if not sealed:
        return []
    yield from core.opened(create=True)
    results: Sent = [None] * len(sealed)
    whole = wait_replicas > 0
    calls: list[tuple[Call[Sent], Sequence[int]]]
    if len(sealed) == 1:
        calls = [(_call(core.shard(sealed[0].id), sealed, whole), range(1))]
    else:
        calls = list(_calls(core, sealed, whole))
    width = 1 if wait_replicas else CALLS_A_TRIP
    for start in range(0, len(calls), width):
        group = calls[start : start + width]
        trip: list[Call[Any]] = [call for call, _ in group]
        if wait_replicas:
            trip += [core.shard(sealed[group[0][1][0]].id).confirm(), _wait(trip[0].key, wait_replicas)]
        replies = yield trip
        for (_, positions), reply in zip(group, replies, strict=False):
            sent = expect(reply)
            for position, result in zip(positions, sent, strict=True):
                results[position] = result
            if None in sent:
                yield from _existing(
                    core, sealed, [p for p, each in zip(positions, sent, strict=True) if each is None], results
                )
        if wait_replicas and expect(replies[-1]) < wait_replicas:
            known = [result for result in results if result is not None]
            ids = ", ".join(sealed[i].id for i in group[0][1][:3])
            raise NotReplicated(
                f"{replies[-1]} of {wait_replicas} replicas confirmed {ids} within {REPLICA_TIMEOUT_MS // 1000} s; "
                "the message is stored on the master: send again under the same id (see `sent`) once replicas are back",
                known,
            )
    _raise_duplicates(sealed, results)
    return [result for result in results if result is not None]


def check_replicas(wait_replicas: int) -> None:
    """Raise InvalidInput unless it is a whole number from 0 to 1,000."""
    if not is_whole(wait_replicas) or not 0 <= wait_replicas <= MAX_REPLICAS:
        raise InvalidInput(f"wait_replicas {wait_replicas!r} is not a whole number from 0 to {MAX_REPLICAS}")


def may_share(message: Sealed) -> bool:
    """Whether a message may go out in one call with those of other threads: small, and safe to be sent twice."""
    return message.on_conflict == "ignore" and len(message.envelope) <= SHARED_BYTES


def seal_all(core: Core, outgoing: Iterable[Outgoing]) -> list[Sealed]:
    """Check messages and make them ready to go out; raises InvalidInput for any of them."""
    if not isinstance(outgoing, Iterable):
        raise InvalidInput(f"{outgoing!r} is not a list: give send_many a list of Outgoing(payload, …)")
    messages = list(outgoing)
    settings, limit = core.settings, core.settings.max_payload
    sealed: list[Sealed] = []
    delay: object = None
    due: Raw = "+0"
    for message, fresh in zip(messages, new_ids(len(messages)), strict=True):
        if not isinstance(message, Outgoing):
            raise InvalidInput(f"{message!r} is not an Outgoing: give send_many a list of Outgoing(payload, …)")
        if message.on_conflict not in _ON_CONFLICT:
            raise InvalidInput(f"on_conflict {message.on_conflict!r} is none of {', '.join(_ON_CONFLICT)}")
        if message.at is not None or message.delay is not delay:  # often the same for all
            delay, due = message.delay, due_word(message.delay, message.at)
        retries = settings.max_retries if message.max_retries is None else check_retries(message.max_retries)
        expires = None if message.expires_in is None else _expiry(message)
        envelope = seal(message.payload, retries, expires, message.headers, limit)
        named = message.id is not None
        message_id = check_id(message.id) if named else fresh  # type: ignore[arg-type]
        sealed.append(Sealed(message_id, due, envelope, message.on_conflict, named))
    return sealed


def due_word(delay: object, at: dt.datetime | None) -> Raw:
    """Return a due time as scripts take it: '+delay_ms' or ms; without both, now.

    Raises:
        InvalidTime: both were given, or either is out of range.
    """
    if at is None:
        return "+0" if delay is None else f"+{delay_ms(delay)}"  # type: ignore[arg-type]  # delay_ms checks it
    if delay is not None:
        raise InvalidTime(f"delay={delay!r} and at={at!r} were given: give one of them")
    return timestamp_ms(at)


def _expiry(message: Outgoing) -> int:
    assert message.expires_in is not None
    expires = delay_ms(message.expires_in, "expires_in")
    # Whether `at` comes before the expiry is the server's clock to say: it will, when the message is due.
    if expires <= (0 if message.delay is None else delay_ms(message.delay)):
        raise InvalidTime(f"expires_in={message.expires_in!r} is over before the message is due: give a longer one")
    return expires


def _calls(core: Core, sealed: Sequence[Sealed], whole: bool) -> Iterator[tuple[Call[Sent], Sequence[int]]]:
    """Group messages, of which the positions are told, into calls: of one shard, ids all different, bounded."""
    for scripts, positions in _by_shard(core, sealed):
        for group in _groups(sealed, positions):
            yield _call(scripts, [sealed[i] for i in group], whole), group


def _call(scripts: Scripts, messages: Sequence[Sealed], whole: bool) -> Call[Sent]:
    first = messages[0]
    if first.on_conflict == "replace":
        return scripts.replace(first.id, first.due, first.envelope, partial(_replaced, first.id), whole)
    triples = [(message.id, message.due, message.envelope) for message in messages]
    # Sent again unasked, a message would be told to be a duplicate of itself.
    repeats = not first.named or all(message.on_conflict != "error" for message in messages)
    return scripts.send(triples, first.named, whole, repeats, partial(_created, messages))


def _replaced(message_id: str, reply: list[int]) -> Sent:
    due, created = reply
    return [SentMessage(message_id, from_ms(due), bool(created))]


def _created(messages: Sequence[Sealed], dues: list[int]) -> Sent:
    sent: Sent = []
    last, due_at = EXISTED, from_ms(0)
    for message, due in zip(messages, dues, strict=True):
        if due == EXISTED:
            sent.append(None)
            continue
        if due != last:  # often the same for all
            last, due_at = due, from_ms(due)
        sent.append(tuple.__new__(SentMessage, (message.id, due_at, True)))  # half the price of SentMessage(…)
    return sent


def _by_shard(core: Core, sealed: Sequence[Sealed]) -> Iterable[tuple[Scripts, Sequence[int]]]:
    if len(core.shards) == 1:
        return [(core.shards[0], range(len(sealed)))]
    shards: dict[int, tuple[Scripts, list[int]]] = {}
    for position, message in enumerate(sealed):
        scripts = core.shard(message.id)
        shards.setdefault(id(scripts), (scripts, []))[1].append(position)
    return shards.values()


def _groups(sealed: Sequence[Sealed], positions: Sequence[int]) -> Iterator[Sequence[int]]:
    """Cut messages, in their order, into what goes into one call; one to be replaced goes alone."""
    start = size = 0
    first = sealed[positions[0]]
    ids: set[str] = set()
    for i, position in enumerate(positions):
        message = sealed[position]
        size += len(message.envelope)
        alone = message.on_conflict == "replace" or first.on_conflict == "replace"
        full = i - start >= MAX_IDS or size > MAX_CALL_BYTES
        if i > start and (full or alone or message.named != first.named or message.id in ids):
            yield positions[start:i]
            start, size, first = i, len(message.envelope), message
            ids.clear()
        if message.named:
            ids.add(message.id)
    yield positions[start:]


def _wait(key: str, replicas: int) -> Call[list[int]]:
    return Call(key, ("WAIT", replicas, REPLICA_TIMEOUT_MS), as_is)


def _existing(core: Core, sealed: Sequence[Sealed], positions: list[int], results: Sent) -> Steps[None]:
    found = yield from find_all(core, [sealed[position].id for position in positions])
    for position, result in zip(positions, found, strict=True):
        message, scores = sealed[position], result.scores
        due = next((scores[state] for state in ("pending", "ready", "retry") if state in scores), None)
        # A random id that exists can only be our own: the connection broke after an earlier try had gone through.
        results[position] = SentMessage(message.id, from_ms(due or _asked(core, message.due)), not message.named)


def _asked(core: Core, due: Raw) -> float:
    now = core.clock() or time.time() * 1000
    return float(now) + int(due) if isinstance(due, str) else float(due)


def _raise_duplicates(sealed: Sequence[Sealed], results: Sent) -> None:
    duplicates = [
        message.id
        for message, result in zip(sealed, results, strict=True)
        if message.on_conflict == "error" and result is not None and not result.created
    ]
    if duplicates:
        names = f"{', '.join(map(repr, duplicates[:5]))}{'…' if len(duplicates) > 5 else ''}"
        others = "nothing was changed" if len(sealed) == 1 else "it was left as it is, and all others were sent"
        raise DuplicateMessage(
            f'message id {names} exists already: {others}; use on_conflict="ignore" or "replace", or another id',
            [result for result in results if result is not None],
        )
