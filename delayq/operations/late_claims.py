"""Claims that a node has not answered within their trip: what they have handed out is taken when the reply comes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from delayq.model.lease_clock import lease_now
from delayq.operations.queue_context import QueueContext
from delayq.operations.unfetched import ClaimedUnfetched
from delayq.protocol.late_reply import Silent, Unanswered
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.replies import Claimed

PATIENCE_SECONDS = 1.0


@dataclass(frozen=True, eq=False)
class LateClaim:
    """A claim without an answer.

    Attributes:
        reply: where its reply will be.
        lease: ms.
        asked: when the lease may have begun, by `lease_now`.
        answered: called with the reply, so that the next claim gets a name of its own.
        process: only this process hears the reply.
    """

    scripts: QueueCommands
    reply: Unanswered
    lease: int
    asked: float
    answered: Callable[[Claimed], object]
    process: int = field(default_factory=os.getpid)


def check(context: QueueContext, scripts: QueueCommands | None = None) -> None:
    """Raise Silent if a claim has a reply that was not taken yet, on one shard or on any.

    The next claim on the shard would get it again, and a receiver must not hear that there are no messages.
    """
    for each in context.late_claims:
        if scripts in (each.scripts, None) and each.process == os.getpid():
            raise Silent(each.scripts.keys.meta)


def left(context: QueueContext) -> float:
    """Return for how many seconds a receiver without messages should still wait for replies; most are only slow."""
    asked = max((each.asked for each in context.late_claims if each.process == os.getpid()), default=-math.inf)
    return max(0.0, asked + PATIENCE_SECONDS - lease_now())


def arrived(context: QueueContext) -> None:
    """Take messages from the replies that have come since; a claim that was lost is made again."""
    for each in tuple(context.late_claims):
        is_mine = each.process == os.getpid()
        if is_mine and each.reply.is_open:
            continue
        try:
            context.late_claims.remove(each)
        except ValueError:  # another thread was faster
            continue
        found = each.reply.reply
        if is_mine and isinstance(found, Claimed):
            each.answered(found)
            if found.ids:
                context.claimed_unfetched.append(ClaimedUnfetched(each.scripts, found, each.lease, each.asked))
