"""Claiming: from due to handed out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from delayq import outcome as oc
from delayq.calls import Call, Steps, expect, is_foreign, shown
from delayq.envelope import Envelope, parse
from delayq.errors import DelayqError, ServerUnreachable, StaleReceipt, UnreadableEnvelope
from delayq.log import log, log_of
from delayq.message import Deliveries, Delivery, receipt_of
from delayq.operations import admitting, arming, limiting, slots
from delayq.operations.core import Core
from delayq.plan import SLOT, Occurrence, occurrence
from delayq.scripts import MAX_IDS, Claimed, Scripts

TRIP_BYTES = 4 * 1024 * 1024  # of envelopes in a round trip
PARTS, LEAST_PART = 4, 50  # a part is opened while the server copies the next one

D = TypeVar("D", bound=Delivery)


class Batch(NamedTuple):
    """What a claim brought: messages to handle, and how many there were with those that must not be handled.

    Attributes:
        held: whether a limit of the queue has held back others.
        failed: how many have failed already, as their key could not be told.
    """

    messages: list[Any]
    claimed: int
    held: bool = False
    failed: int = 0


NOTHING = Claimed(0, 0, [], [], [])


class Unread(NamedTuple):
    """What a shard has handed out, and is to be fetched; `asked` is when, on the monotonic clock."""

    scripts: Scripts
    found: Claimed
    lease: int
    asked: float

    def split(self, count: int) -> tuple[Unread, Unread]:
        """Return the first `count` messages, and the others."""

        def part(of: slice) -> Unread:
            now_ms, micros, ids, dues, deliveries, _ = self.found
            return self._replace(found=Claimed(now_ms, micros, ids[of], dues[of], deliveries[of]))

        return part(slice(count)), part(slice(count, None))


def claim(
    core: Core,
    make: Callable[..., D],
    limit: int,
    lease: int,
    recovering: bool = False,
    expected: Sequence[str] = (),
    consumer: str = "",
) -> Steps[Batch]:
    """Promote what is due, hand out up to `limit` messages of all shards under a lease of `lease` ms.

    Of the `expected` messages, one a shard or "", the envelopes are fetched in the claim's own round trip: the lone
    message that an idle consumer wakes for is handled one round trip earlier.

    With `recovering`, deliveries whose lease ran out are taken back first, in the same round trip. What was handed out
    before and could not be fetched, because the connection failed in between, is fetched first of all.

    Deliveries that must not reach a handler are settled on the way: payload gone or unreadable, or an id that is no
    text → dead, expired → counted as expired, past its limit (its last consumer was lost) → dead.

    Args:
        consumer: its name, for the ledger.
    """
    if core.undeclared:
        yield from limiting.declare(core)
    shards = yield from core.opened()
    messages: list[Any] = []
    claimed, held, failed = 0, False, 0
    awaited = dict(zip(shards, expected, strict=False))  # the number of shards may have become known only now
    try:
        while (unread := _unread(core, limit - len(messages))) is not None:
            claimed += len(unread.found.ids)
            admitted = yield from _fetched(core, make, unread)
            messages += admitted.messages
            failed += admitted.failed
        for scripts in _rotated(shards, core):
            share = limit - len(messages)
            if share <= 0 < limit:
                break
            asked = time.monotonic()
            guess = awaited.get(scripts, "")
            found, envelopes = yield from _hand_out(
                core, scripts, min(share, MAX_IDS), lease, recovering, guess, consumer
            )
            if found.held is not None or found.ids:  # else it may be paused
                core.is_limited, held = found.held is not None, bool(found.held)
            if found.ids:
                claimed += len(found.ids)
                admitted = yield from _fetched(core, make, Unread(scripts, found, lease, asked), envelopes)
                messages += admitted.messages
                failed += admitted.failed
    except DelayqError:
        if not (messages or failed):
            raise  # else what was handed out must reach its handler first: the next claim tells what is wrong
    return Batch(messages, claimed, held, failed)


def _hand_out(
    core: Core, scripts: Scripts, limit: int, lease: int, recovering: bool, expected: str, consumer: str
) -> Steps[tuple[Claimed, list[bytes | None] | None]]:
    """Return what was handed out and, if that is the expected message alone, its envelope."""
    calls: list[Call[Any]] = [scripts.unack_to_retry()] if recovering else []
    calls += [scripts.pending_to_ready(), scripts.ready_to_unack(limit, lease, consumer)]
    if expected:
        *before, found, envelopes = yield [*calls, scripts.envelopes([expected])]
    else:
        (*before, found), envelopes = (yield calls), None
    is_empty = limit > 0 and isinstance(found, Claimed) and not (found.ids or found.held)
    if is_empty and any(isinstance(each, int) and each > 0 for each in before):
        # A server that has forgotten how to promote, but not how to claim, has claimed first.
        (found,), envelopes = (yield [scripts.ready_to_unack(limit, lease, consumer)]), None
    error = next((each for each in (found, *before) if isinstance(each, DelayqError)), None)
    if error is None:
        core.outages.over(scripts.keys.meta)
    if isinstance(found, Claimed) and found.ids:
        alone = found.ids == [expected] and not isinstance(envelopes, DelayqError)
        return found, envelopes if alone else None
    if error is None:
        return expect(found), None  # nothing is due
    if len(core.shards) == 1 or isinstance(error, ServerUnreachable):
        raise error
    core.outages.met(scripts.keys.meta, error)
    return NOTHING, None


def _unread(core: Core, limit: int) -> Unread | None:
    """Take up to `limit` of what was handed out before and could not be fetched; its lease still stands."""
    while limit > 0:
        try:
            unread: Unread = core.unread.pop()
        except IndexError:
            return None
        if time.monotonic() < unread.asked + unread.lease / 1000:
            first, rest = unread.split(limit)
            if rest.found.ids:
                core.unread.append(rest)
            return first
    return None


def _fetched(
    core: Core, make: Callable[..., D], unread: Unread, envelopes: list[bytes | None] | None = None
) -> Steps[admitting.Admitted]:
    try:
        return (yield from _received(core, make, *unread, envelopes))
    except DelayqError:
        core.unread.append(unread)
        raise


def recover(core: Core) -> Steps[int | None]:
    """Take back deliveries whose lease ran out, of all shards, a bounded number.

    Returns:
        how many; None when a shard refused.
    """
    shards = yield from core.opened()
    results = yield [scripts.unack_to_retry() for scripts in shards]
    for error in results:
        if isinstance(error, DelayqError):
            log.error("lost deliveries are not taken back", queue=core.name, error=str(error))
    yield from slots.look_through(core)
    return None if any(isinstance(each, DelayqError) for each in results) else sum(results)


def _rotated(shards: list[Scripts], core: Core) -> list[Scripts]:
    """Begin with another shard each time, so that none is served last for ever."""
    if len(shards) == 1:
        return shards
    core.turn = (core.turn + 1) % len(shards)
    return shards[core.turn :] + shards[: core.turn]


def _received(
    core: Core,
    make: Callable[..., D],
    scripts: Scripts,
    found: Claimed,
    lease: int,
    asked: float,
    envelopes: list[bytes | None] | None,
) -> Steps[admitting.Admitted]:
    """Open what was claimed; fetch it first, if it is not there, a bounded number of bytes at a time."""
    opening = _Opening(core, scripts, make, found, lease, asked)
    opened = [opening.read(0, envelopes)] if envelopes else (yield from _fetch(core, scripts, found.ids, opening))
    settlements = [call for each in opened for call in each.settlements]
    occurrences = [each for each_opened in opened for each in each_opened.occurrences]
    if settlements or occurrences:  # a stale receipt here means that the message has moved on already
        replies = yield [*(call for _, call in occurrences), *settlements]  # armed before it is settled as skipped
        arming.note(core, [each for each, _ in occurrences], replies[: len(occurrences)])
    messages = [message for each in opened for message in each.messages]
    if doubtful := [message for each in opened for message in each.doubtful]:
        replies = yield [scripts.extend(message.id, message.receipt, lease) for message in doubtful]
        kept = [not isinstance(reply, StaleReceipt) and expect(reply) for reply in replies]
        gone = {message.id for message, ours in zip(doubtful, kept, strict=True) if not ours}
        messages = [message for message in messages if message.id not in gone]
    return (yield from admitting.admit(core, scripts, messages))


def _fetch(core: Core, scripts: Scripts, ids: list[str], opening: _Opening[D]) -> Steps[list[_Opened[D]]]:
    """Fetch and open envelopes: a bounded number of bytes a trip, as far as earlier ones tell how large they are."""
    opened: list[_Opened[D]] = []
    done, count = 0, len(ids)
    while done < count:
        trip = min(count - done, MAX_IDS, max(1, int(TRIP_BYTES / core.mean_bytes)))
        part = max(LEAST_PART, -(-trip // PARTS))
        calls = [
            scripts.envelopes(ids[start : min(start + part, done + trip)], partial(opening.read, start))
            for start in range(done, done + trip, part)
        ]
        parts = list(map(expect, (yield calls)))
        core.mean_bytes = max(1.0, (core.mean_bytes + sum(each.size for each in parts) / trip) / 2)
        opened += parts
        done += trip
    return opened


class _Opened(Generic[D]):
    """Messages to handle, the calls that settle those that must not reach a handler, and the bytes of them all.

    Doubtful are those whose envelope was stored after the hand-out: they were replaced, and the new one may not be due
    (or the server's clock was set back).
    """

    def __init__(self) -> None:
        self.messages: list[D] = []
        self.doubtful: list[D] = []
        self.settlements: list[Call[Any]] = []
        self.occurrences: list[tuple[Occurrence, Call[int]]] = []  # of schedules, and what sends the next one
        self.size = 0


class _Opening(Generic[D]):
    """Makes messages of what a claim and the envelopes tell."""

    def __init__(
        self, core: Core, scripts: Scripts, make: Callable[..., D], found: Claimed, lease: int, asked: float
    ) -> None:
        self._core = core
        self._scripts = scripts
        self._make = make
        self._found = found
        self._until = found.now_ms + lease
        self._held_until = asked + lease / 1000

    def read(self, start: int, stored: list[bytes | None]) -> _Opened[D]:
        """Open the envelopes from the number `start` on."""
        result: _Opened[D] = _Opened()
        found, owner, end = self._found, self._core.owner, start + len(stored)
        make, until, held_until, messages = self._make, self._until, self._held_until, result.messages
        handed, fresh = found.now_ms + found.micros / 1000, receipt_of(None, found.micros)
        rows = zip(found.ids[start:end], found.dues_ms[start:end], found.deliveries[start:end], stored, strict=True)
        for message_id, due, deliveries, envelope in rows:
            if envelope is None:
                error = "the payload key is gone: evicted, or deleted by another program"
                result.settlements.append(self._buried(message_id, deliveries, oc.REASON_PAYLOAD_MISSING, error))
                continue
            result.size += len(envelope)
            if not message_id.isascii() and is_foreign(message_id):
                error = "the id is no UTF-8: another program has put it there"
                result.settlements.append(self._buried(message_id, deliveries, oc.REASON_UNREADABLE, error))
                continue
            try:
                created, opened = parse(envelope)
            except UnreadableEnvelope as unreadable:
                text = oc.error_text(unreadable)
                result.settlements.append(self._buried(message_id, deliveries, oc.REASON_UNREADABLE, text))
                continue
            receipt = receipt_of(deliveries, found.micros) if deliveries else fresh
            message = make(owner, message_id, created, opened, due, deliveries, handed, until, receipt, held_until)
            if opened.headers and SLOT in opened.headers and self._is_skipped(message, opened, result):
                result.settlements.append(self._scripts.expire(message_id, receipt))
                result.settlements += slots.unused(self._core, message)
                continue
            if opened.expires_ms is not None and message.is_expired:
                log_of(message).warning("message expired before it was started", expires_at=str(message.expires_at))
                result.settlements.append(self._scripts.expire(message_id, receipt))
                result.settlements += slots.unused(self._core, message)
            elif deliveries and message.is_past_its_limit:
                result.settlements.append(self._buried(message_id, deliveries, oc.REASON_CONSUMER_LOST))
                result.settlements += slots.unused(self._core, message)
            else:
                messages.append(message)
                if created > found.now_ms:
                    result.doubtful.append(message)
        return result

    def _is_skipped(self, message: D, envelope: Envelope, result: _Opened[D]) -> bool:
        """Let the next occurrence follow this one; return whether it comes too late to be handled."""
        of, now = occurrence(envelope.headers or {}), self._found.now_ms
        if of is None:
            log_of(message).error("schedule cannot be read here, nor go on: is its time zone known to this machine?")
            return False
        is_skipped = message.attempt == 1 and of.plan.skips(of.slot_ms, now)  # a retry has begun in time
        if call := arming.next_of(self._core, of, envelope, now, is_skipped):
            result.occurrences.append((of, call))
        return is_skipped

    def _buried(self, message_id: str, deliveries: str | None, reason: str, error: str = "") -> Call[int]:
        said = log.bind(queue=self._core.name, id=shown(message_id), attempt=Deliveries.read(deliveries).past + 1)
        said.warning("message died before a handler saw it", next="dead", reason=reason, error=error)
        return self._scripts.reject(
            message_id, receipt_of(deliveries, self._found.micros), reason, error, counted=False
        )
