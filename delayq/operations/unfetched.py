"""Messages that were handed out but not fetched yet: fetched later, renewed meanwhile, and handed back at the end."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence

from delayq.errors import DelayqError, StaleReceipt
from delayq.model.delivery import Delivery, receipt_of
from delayq.model.lease_clock import lease_now
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.replies import Claimed

MAX_LEASES = 10


class ClaimedUnfetched:
    """Messages that a shard has handed out and that must be fetched.

    Attributes:
        lease: ms.
        asked: when the lease began or was renewed, by `lease_now`.
        until_ms: when it ends, by the server's clock.
        given_up_at: when to stop trying to fetch them, by `lease_now`.
        failures: how often their fetch broke off.
        messages: the fetched messages, whose leases are renewed until the claim is done.
        process: the process that they were handed to; after a fork they belong to the parent.
        is_doubtful: some of them may belong to others by now.
        was_away: their node was, while others were not, so their leases are renewed before they are fetched.
    """

    def __init__(self, scripts: QueueCommands, found: Claimed, lease: int, asked: float) -> None:
        self.scripts = scripts
        self.found = found
        self.lease = lease
        self.asked = asked
        self.until_ms = found.now_ms + lease
        self.given_up_at = math.inf
        self.failures = 0
        self.messages: Sequence[Delivery] = ()
        self.process = os.getpid()
        self.is_doubtful = self.was_away = False

    def split(self, count: int) -> tuple[ClaimedUnfetched, ClaimedUnfetched]:
        """Return the first `count` messages, and the others."""

        def part(of: slice) -> ClaimedUnfetched:
            found = _only(self.found, range(len(self.found.ids))[of])
            other = ClaimedUnfetched(self.scripts, found, self.lease, self.asked)
            other.until_ms, other.given_up_at, other.is_doubtful = self.until_ms, self.given_up_at, self.is_doubtful
            return other

        first, rest = part(slice(count)), part(slice(count, None))
        first.failures = self.failures
        first.was_away = rest.was_away = self.was_away
        return first, rest

    def keep(self, count: int) -> ClaimedUnfetched | None:
        """Keep only the first `count` messages; return the others, if any, which have not been tried yet."""
        if count == len(self.found.ids):
            return None
        first, rest = self.split(count)
        self.found = first.found
        rest.given_up_at = math.inf
        return rest

    @property
    def left(self) -> float:
        """The seconds until the lease ends."""
        return self.asked + self.lease / 1000 - lease_now()

    def refused(self) -> None:
        """Note that the server has refused to let them be fetched."""
        self.given_up_at = min(self.given_up_at, lease_now() + MAX_LEASES * self.lease / 1000)

    @property
    def wanes(self) -> bool:
        """Whether a third of the lease is over, so that it should be renewed."""
        return self.left < self.lease / 1500

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """Yield the id, the receipt and the due time, ms, of each message."""
        for message_id, deliveries, due in zip(self.found.ids, self.found.deliveries, self.found.dues_ms, strict=True):
            yield message_id, receipt_of(deliveries, self.found.micros), due


def take(context: QueueContext, limit: int, errors: Mapping[str, object]) -> ClaimedUnfetched | None:
    """Take up to `limit` messages that were handed out before and could not be fetched, and whose lease may still hold.

    Args:
        errors: by the shards, named by a key, that are left alone.
    """
    waiting: list[ClaimedUnfetched] = context.claims.unfetched
    for unread in reversed(tuple(waiting)):
        if limit <= 0 or unread.scripts.keys.meta in errors:
            continue
        try:
            context.claims.unfetched.remove(unread)  # not from `waiting`, which may have been handed back meanwhile
        except ValueError:  # another thread was faster
            continue
        is_valid = (unread.left > 0 or unread.was_away) and lease_now() < unread.given_up_at
        if is_valid and unread.process == os.getpid():
            first, rest = unread.split(limit)
            if rest.found.ids:
                context.claims.unfetched.append(rest)
            return first
    return None


def renew(context: QueueContext, everything: bool = False) -> Operation[None]:
    """Renew the leases of messages not fetched yet when a third of the lease is over, or all.

    Messages that are being fetched are renewed for as long as that takes, as a large one needs many leases on a slow
    link. Messages that the server refuses go to others after `MAX_LEASES`.
    """
    asked, process = lease_now(), os.getpid()
    failed = [each for each in context.claims.unfetched if asked < each.given_up_at]
    known = [each for each in (*context.claims.fetching, *failed) if each.process == process]
    for each in known:
        if everything or each.wanes:
            each.is_doubtful |= not all((yield from _extend(each)))


def confirm(each: ClaimedUnfetched) -> Operation[None]:
    """Before messages are fetched that were handed out long ago, renew their leases; forget those that others have."""
    if each.is_doubtful or each.wanes:
        kept = [position for position, ours in enumerate((yield from _extend(each))) if unwrap(ours)]
        each.found, each.is_doubtful = _only(each.found, kept), False


def _extend(each: ClaimedUnfetched) -> Operation[list[bool | DelayqError]]:
    """Renew leases; return for each whether it is still held, or the server's error."""
    asked = lease_now()
    results = yield [each.scripts.extend(message_id, receipt, each.lease) for message_id, receipt, _ in each.rows()]
    if ends := [result for result in results if isinstance(result, int) and result]:
        each.asked, each.until_ms = asked, max(ends)
        for message in each.messages:
            message.leased_until(each.until_ms)
            message.held_until = asked + each.lease / 1000
    return [
        False if isinstance(each, StaleReceipt) else each if isinstance(each, DelayqError) else each > 0
        for each in results
    ]


def _only(found: Claimed, positions: Sequence[int]) -> Claimed:
    """Return some of the messages of a claim."""
    ids, dues, deliveries = found.ids, found.dues_ms, found.deliveries
    return found._replace(
        ids=[ids[at] for at in positions],
        dues_ms=[dues[at] for at in positions],
        deliveries=[deliveries[at] for at in positions],
    )


def release(context: QueueContext) -> Operation[None]:
    """Hand back messages that were not fetched, without using a retry."""
    unfetched, context.claims.unfetched = context.claims.unfetched, []
    for each in unfetched:
        if each.left > 0 and each.process == os.getpid():
            handed_us = each.found.now_ms * 1000 + each.found.micros if context.claims.is_limited else ""
            yield [
                each.scripts.release(message_id, receipt, due, handed_us) for message_id, receipt, due in each.rows()
            ]
