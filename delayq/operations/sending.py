"""Sending: from a payload and its options to pending."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple, get_args

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
CALLS_A_TRIP = 4
REPLICA_TIMEOUT_MS = 3000  # less than the client's socket timeout, which would end the wait as a lost connection
EXISTED = -1
MAX_REPLICAS = 1000


class Sealed(NamedTuple):
    """A message that is ready to go out."""

    position: int
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
    if not is_whole(wait_replicas) or not 0 <= wait_replicas <= MAX_REPLICAS:
        raise InvalidInput(f"wait_replicas {wait_replicas!r} is not a whole number from 0 to {MAX_REPLICAS}")
    sealed = _seal_all(core, outgoing)
    if not sealed:
        return []
    yield from core.opened(create=True)
    results: list[SentMessage | None] = [None] * len(sealed)
    calls = list(_calls(core, sealed, whole=wait_replicas > 0))
    width = 1 if wait_replicas else CALLS_A_TRIP
    for start in range(0, len(calls), width):
        group = calls[start : start + width]
        trip: list[Call[list[int]]] = [call for call, _ in group]
        if wait_replicas:
            trip += [core.shard(group[0][1][0].id).confirm(), _wait(trip[0].key, wait_replicas)]  # type: ignore[list-item]
        replies = yield trip
        for (_, messages), reply in zip(group, replies, strict=False):
            yield from _read(core, messages, expect(reply), results)
        if wait_replicas and expect(replies[-1]) < wait_replicas:
            sent = [result for result in results if result is not None]
            ids = ", ".join(message.id for message in group[0][1][:3])
            raise NotReplicated(
                f"{replies[-1]} of {wait_replicas} replicas confirmed {ids} within {REPLICA_TIMEOUT_MS // 1000} s; "
                "the message is stored on the master: send again under the same id (see `sent`) once replicas are back",
                sent,
            )
    _raise_duplicates(sealed, results)
    return [result for result in results if result is not None]


def _seal_all(core: Core, outgoing: Iterable[Outgoing]) -> list[Sealed]:
    if not isinstance(outgoing, Iterable):
        raise InvalidInput(f"{outgoing!r} is not a list: give send_many a list of Outgoing(payload, …)")
    messages = list(outgoing)
    fresh = iter(new_ids(len(messages)))
    return [_seal(core, position, message, next(fresh)) for position, message in enumerate(messages)]


def _seal(core: Core, position: int, message: Outgoing, fresh: str) -> Sealed:
    if not isinstance(message, Outgoing):
        raise InvalidInput(f"{message!r} is not an Outgoing: give send_many a list of Outgoing(payload, …)")
    settings = core.settings
    if message.on_conflict not in get_args(OnConflict):
        raise InvalidInput(f"on_conflict {message.on_conflict!r} is none of {', '.join(get_args(OnConflict))}")
    due = due_word(message.delay, message.at)
    retries = settings.max_retries if message.max_retries is None else check_retries(message.max_retries)
    expires = None if message.expires_in is None else _expiry(message)
    envelope = seal(message.payload, retries, expires, message.headers, settings.max_payload)
    message_id = fresh if message.id is None else check_id(message.id)
    return Sealed(position, message_id, due, envelope, message.on_conflict, named=message.id is not None)


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


def _calls(core: Core, sealed: list[Sealed], whole: bool) -> Iterator[tuple[Call[list[int]], list[Sealed]]]:
    """Group messages into calls: of one shard, ids all different, bounded in number and bytes."""
    open_groups: dict[int, _Group] = {}
    for message in sealed:
        scripts = core.shard(message.id)
        group = open_groups.setdefault(id(scripts), _Group(scripts, message.named))
        if not group.takes(message):
            yield group.call(whole), group.messages
            group = open_groups[id(scripts)] = _Group(scripts, message.named)
        if message.on_conflict == "replace":
            if group.messages:  # what was sent before it under the same id must be there before it
                yield group.call(whole), group.messages
                del open_groups[id(scripts)]
            yield scripts.replace(message.id, message.due, message.envelope, whole), [message]
        else:
            group.add(message)
    for group in open_groups.values():
        if group.messages:
            yield group.call(whole), group.messages


class _Group:
    """The messages of one send call."""

    def __init__(self, scripts: Scripts, named: bool) -> None:
        self._scripts = scripts
        self._named = named
        self._ids: set[str] = set()
        self._bytes = 0
        self.messages: list[Sealed] = []

    def takes(self, message: Sealed) -> bool:
        full = len(self.messages) >= MAX_IDS or self._bytes + len(message.envelope) > MAX_CALL_BYTES
        return not self.messages or not (full or message.id in self._ids or message.named != self._named)

    def add(self, message: Sealed) -> None:
        self.messages.append(message)
        self._ids.add(message.id)
        self._bytes += len(message.envelope)

    def call(self, whole: bool) -> Call[list[int]]:
        messages = [(message.id, message.due, message.envelope) for message in self.messages]
        # Sent again unasked, a message would be told to be a duplicate of itself.
        repeats = all(message.on_conflict != "error" for message in self.messages)
        return self._scripts.send(messages, self._named, whole, repeats)


def _wait(key: str, replicas: int) -> Call[list[int]]:
    return Call(key, ("WAIT", replicas, REPLICA_TIMEOUT_MS), as_is)


def _read(core: Core, messages: list[Sealed], reply: list[int], results: list[SentMessage | None]) -> Steps[None]:
    if messages[0].on_conflict == "replace":
        due, created = reply
        results[messages[0].position] = SentMessage(messages[0].id, from_ms(due), bool(created))
        return
    existing = []
    for message, due in zip(messages, reply, strict=True):
        if due == EXISTED:
            existing.append(message)
        else:
            results[message.position] = SentMessage(message.id, from_ms(due), True)
    if existing:
        yield from _read_existing(core, existing, results)


def _read_existing(core: Core, existing: list[Sealed], results: list[SentMessage | None]) -> Steps[None]:
    found = yield from find_all(core, [message.id for message in existing])
    for message, result in zip(existing, found, strict=True):
        scores = result.scores
        due = next((scores[state] for state in ("pending", "ready", "retry") if state in scores), None)
        # A random id that exists can only be our own: the connection broke after an earlier try had gone through.
        results[message.position] = SentMessage(
            message.id, from_ms(due or _asked(core, message.due)), not message.named
        )


def _asked(core: Core, due: Raw) -> float:
    now = core.clock() or time.time() * 1000
    return float(now) + int(due) if isinstance(due, str) else float(due)


def _raise_duplicates(sealed: list[Sealed], results: list[SentMessage | None]) -> None:
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
