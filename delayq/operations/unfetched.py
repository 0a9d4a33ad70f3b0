"""What was handed out and is not fetched yet: it is fetched later, renewed meanwhile, and handed back at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from delayq.model.delivery import Delivery, receipt_of
from delayq.model.lease_clock import lease_now
from delayq.operations.queue_context import QueueContext
from delayq.protocol.operation import Operation
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.replies import Claimed

MAX_LEASES = 10


class ClaimedUnfetched:
    """What a shard has handed out, and is to be fetched.

    Attributes:
        lease: ms.
        asked: when the lease began or was renewed, by `lease_now`.
        until_ms: when it ends, by the server's clock.
        handed: when it was handed out, by `lease_now`.
        messages: what was made of it, once it is fetched: their leases are renewed until the claim is done.
        process: that it was handed to: what has come over a fork is the parent's.
    """

    def __init__(self, scripts: QueueCommands, found: Claimed, lease: int, asked: float) -> None:
        self.scripts = scripts
        self.found = found
        self.lease = lease
        self.asked = asked
        self.until_ms = found.now_ms + lease
        self.handed = asked
        self.messages: Sequence[Delivery] = ()
        self.process = os.getpid()

    def split(self, count: int) -> tuple[ClaimedUnfetched, ClaimedUnfetched]:
        """Return the first `count` messages, and the others."""

        def part(of: slice) -> ClaimedUnfetched:
            handed = self.found
            found = Claimed(handed.now_ms, handed.micros, handed.ids[of], handed.dues_ms[of], handed.deliveries[of])
            other = ClaimedUnfetched(self.scripts, found, self.lease, self.asked)
            other.until_ms, other.handed = self.until_ms, self.handed
            return other

        return part(slice(count)), part(slice(count, None))

    @property
    def left(self) -> float:
        """The seconds until the lease ends."""
        return self.asked + self.lease / 1000 - lease_now()

    @property
    def given_up_at(self) -> float:
        """When to stop trying to fetch it, by `lease_now`."""
        return self.handed + MAX_LEASES * self.lease / 1000

    def rows(self) -> Iterator[tuple[str, str, int]]:
        """Yield of each message its id, its receipt, and when it was due, ms."""
        for message_id, deliveries, due in zip(self.found.ids, self.found.deliveries, self.found.dues_ms, strict=True):
            yield message_id, receipt_of(deliveries, self.found.micros), due


def take(context: QueueContext, limit: int) -> ClaimedUnfetched | None:
    """Take up to `limit` of what was handed out before and could not be fetched; its lease still stands."""
    while limit > 0:
        try:
            unread: ClaimedUnfetched = context.claimed_unfetched.pop()
        except IndexError:
            return None
        if unread.left > 0 and unread.process == os.getpid() and lease_now() < unread.given_up_at:
            first, rest = unread.split(limit)
            if rest.found.ids:
                context.claimed_unfetched.append(rest)
            return first
    return None


def renew(context: QueueContext) -> Operation[None]:
    """Renew the leases of what was handed out and is not fetched yet, when a third of them is over.

    Messages that are being fetched are renewed for as long as that takes: on a slow link, a large one needs many
    leases. What could not be fetched goes to others after `MAX_LEASES`.
    """
    asked, process = lease_now(), os.getpid()
    failed = [each for each in context.claimed_unfetched if asked < each.given_up_at]
    known = [each for each in (*context.fetching, *failed) if each.process == process]
    waning = [each for each in known if 0 < each.left < each.lease / 1500]
    for each in waning:
        results = yield [each.scripts.extend(message_id, receipt, each.lease) for message_id, receipt, _ in each.rows()]
        if ends := [result for result in results if isinstance(result, int) and result]:
            each.asked, each.until_ms = asked, max(ends)
            for message in each.messages:
                message.leased_until(each.until_ms)
                message.held_until = asked + each.lease / 1000


def release(context: QueueContext) -> Operation[None]:
    """Hand back what was handed out and not fetched: it costs no retry."""
    unfetched, context.claimed_unfetched = context.claimed_unfetched, []
    for each in unfetched:
        if each.left > 0 and each.process == os.getpid():
            handed_us = each.found.now_ms * 1000 + each.found.micros if context.is_limited else ""
            yield [
                each.scripts.release(message_id, receipt, due, handed_us) for message_id, receipt, due in each.rows()
            ]
