"""Claim messages: from due to handed out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.errors import DelayqError, ServerUnreachable
from delayq.log import log
from delayq.model.delivery import Delivery
from delayq.operations import acquire_slots, configure, key_slots
from delayq.operations.open_messages import open_messages
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands
from delayq.protocol.replies import Claimed

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


class ClaimedUnfetched(NamedTuple):
    """What a shard has handed out, and is to be fetched; `asked` is when, on the monotonic clock."""

    scripts: QueueCommands
    found: Claimed
    lease: int
    asked: float

    def split(self, count: int) -> tuple[ClaimedUnfetched, ClaimedUnfetched]:
        """Return the first `count` messages, and the others."""

        def part(of: slice) -> ClaimedUnfetched:
            now_ms, micros, ids, dues, deliveries, _ = self.found
            return self._replace(found=Claimed(now_ms, micros, ids[of], dues[of], deliveries[of]))

        return part(slice(count)), part(slice(count, None))


def claim(
    context: QueueContext,
    make: Callable[..., D],
    limit: int,
    lease: int,
    recovering: bool = False,
    expected: Sequence[str] = (),
    consumer: str = "",
) -> Operation[Batch]:
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
    if context.undeclared:
        yield from configure.declare(context)
    shards = yield from context.opened()
    messages: list[Any] = []
    claimed, held, failed = 0, False, 0
    awaited = dict(zip(shards, expected, strict=False))  # the number of shards may have become known only now
    try:
        while (unread := _unread(context, limit - len(messages))) is not None:
            claimed += len(unread.found.ids)
            admitted = yield from _fetched(context, make, unread)
            messages += admitted.messages
            failed += admitted.failed
        for scripts in _rotated(shards, context):
            share = limit - len(messages)
            if share <= 0 < limit:
                break
            asked = time.monotonic()
            guess = awaited.get(scripts, "")
            found, envelopes = yield from _hand_out(
                context, scripts, min(share, MAX_IDS), lease, recovering, guess, consumer
            )
            if found.held is not None or found.ids:  # else it may be paused
                context.is_limited, held = found.held is not None, bool(found.held)
            if found.ids:
                claimed += len(found.ids)
                admitted = yield from _fetched(context, make, ClaimedUnfetched(scripts, found, lease, asked), envelopes)
                messages += admitted.messages
                failed += admitted.failed
    except DelayqError:
        if not (messages or failed):
            raise  # else what was handed out must reach its handler first: the next claim tells what is wrong
    return Batch(messages, claimed, held, failed)


def _hand_out(
    context: QueueContext,
    scripts: QueueCommands,
    limit: int,
    lease: int,
    recovering: bool,
    expected: str,
    consumer: str,
) -> Operation[tuple[Claimed, list[bytes | None] | None]]:
    """Return what was handed out and, if that is the expected message alone, its envelope."""
    calls: list[Command[Any]] = [scripts.unack_to_retry()] if recovering else []
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
        context.outages.over(scripts.keys.meta)
    if isinstance(found, Claimed) and found.ids:
        alone = found.ids == [expected] and not isinstance(envelopes, DelayqError)
        return found, envelopes if alone else None
    if error is None:
        return unwrap(found), None  # nothing is due
    if len(context.shards) == 1 or isinstance(error, ServerUnreachable):
        raise error
    context.outages.met(scripts.keys.meta, error)
    return NOTHING, None


def _unread(context: QueueContext, limit: int) -> ClaimedUnfetched | None:
    """Take up to `limit` of what was handed out before and could not be fetched; its lease still stands."""
    while limit > 0:
        try:
            unread: ClaimedUnfetched = context.claimed_unfetched.pop()
        except IndexError:
            return None
        if time.monotonic() < unread.asked + unread.lease / 1000:
            first, rest = unread.split(limit)
            if rest.found.ids:
                context.claimed_unfetched.append(rest)
            return first
    return None


def _fetched(
    context: QueueContext, make: Callable[..., D], unread: ClaimedUnfetched, envelopes: list[bytes | None] | None = None
) -> Operation[acquire_slots.Admitted]:
    try:
        return (yield from open_messages(context, make, *unread, envelopes))
    except DelayqError:
        context.claimed_unfetched.append(unread)
        raise


def recover(context: QueueContext) -> Operation[int | None]:
    """Take back deliveries whose lease ran out, of all shards, a bounded number.

    Returns:
        how many; None when a shard refused.
    """
    shards = yield from context.opened()
    results = yield [scripts.unack_to_retry() for scripts in shards]
    for error in results:
        if isinstance(error, DelayqError) and not isinstance(error, ServerUnreachable):  # an outage is logged elsewhere
            log.error("lost deliveries are not taken back", queue=context.name, error=str(error))
    yield from key_slots.look_through(context)
    return None if any(isinstance(each, DelayqError) for each in results) else sum(results)


def _rotated(shards: list[QueueCommands], context: QueueContext) -> list[QueueCommands]:
    """Begin with another shard each time, so that none is served last for ever."""
    if len(shards) == 1:
        return shards
    context.next_shard = (context.next_shard + 1) % len(shards)
    return shards[context.next_shard :] + shards[: context.next_shard]
