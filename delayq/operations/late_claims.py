"""Claims that a node has not answered within their trip: what they have handed out is taken when the reply comes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field

from delayq.errors import DelayqError, ServerUnreachable
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
        is_named: if its reply is lost, the next claim gets the same messages.
        process: only this process hears the reply.
    """

    scripts: QueueCommands
    reply: Unanswered
    lease: int
    asked: float
    answered: Callable[[Claimed], object]
    is_named: bool
    process: int = field(default_factory=os.getpid)


def check_shard(context: QueueContext, scripts: QueueCommands) -> None:
    """Raise Silent if a claim on this shard has a reply that was not taken yet: the next claim would get it again."""
    for each in context.claims.late:
        if each.scripts is scripts and each.process == os.getpid():
            raise Silent(each.scripts.keys.meta)


def check_all(context: QueueContext) -> None:
    """Raise an error if a reply that was not taken may bring messages: a receiver must not hear that there are none.

    Raises:
        Silent: it may still come.
        ServerUnreachable: it is lost. Only one receiver hears of it.
    """
    for each in context.claims.late:
        check_shard(context, each.scripts)
    if lost := take_lost(context):
        raise lost[0]


def is_lost(error: object) -> bool:
    """Whether an error means that the reply to a claim is lost, perhaps with messages."""
    return isinstance(error, ServerUnreachable) and not isinstance(error, Silent)


def take_lost(context: QueueContext) -> list[DelayqError]:
    """Return the errors of late claims whose replies were lost since the last call, with what they handed out."""
    return context.claims.take_lost()


def left(context: QueueContext) -> float:
    """Return for how many seconds a receiver without messages should still wait for replies; most are only slow."""
    asked = max((each.asked for each in context.claims.late if each.process == os.getpid()), default=-math.inf)
    return max(0.0, asked + PATIENCE_SECONDS - lease_now())


def arrived(context: QueueContext) -> None:
    """Take messages from the replies that have come since; a named claim whose reply was lost is made again."""
    for each in tuple(context.claims.late):
        is_mine = each.process == os.getpid()
        if is_mine and each.reply.is_open:
            continue
        try:
            context.claims.late.remove(each)
        except ValueError:  # another thread was faster
            continue
        found = each.reply.reply
        if is_mine and isinstance(found, Claimed):
            each.answered(found)
            if found.ids:
                context.claims.unfetched.append(ClaimedUnfetched(each.scripts, found, each.lease, each.asked))
        elif is_mine and not each.is_named and is_lost(found):
            context.claims.lost.append(found)
