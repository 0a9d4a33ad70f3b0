"""Claim messages: from due to handed out."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from delayq.errors import DelayqError, ServerNotReady, ServerUnreachable
from delayq.log import log
from delayq.model.delivery import Delivery
from delayq.model.lease_clock import lease_now
from delayq.model.message_info import MessageInfo
from delayq.operations import configure, key_slots, late_claims, unfetched
from delayq.operations.byte_budget import LEASE_SHARE
from delayq.operations.open_messages import open_messages
from delayq.operations.queue_context import QueueContext
from delayq.operations.watch import Watch
from delayq.protocol.command import Command
from delayq.protocol.late_reply import Silent, Unanswered
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import MAX_IDS, MAX_MOVED, QueueCommands
from delayq.protocol.replies import Claimed

MISSED_CLAIMS = 8  # without an expectation, after one that was wrong

D = TypeVar("D", bound=Delivery)


class Batch(NamedTuple):
    """The result of a claim: messages to handle, and how many were handed out, with those that must not be handled.

    Attributes:
        limit: how many were asked for.
        held: whether a limit of the queue held back others.
        pause_ends: whether the queue is paused and the pause ends by itself.
        failed: how many failed already because they have no valid key.
        dead: messages that became dead letters before a handler saw them.
        unfetched: whether some were handed out and can be fetched now; the next claim begins with them.
    """

    messages: list[Any]
    claimed: int
    limit: int
    held: bool = False
    failed: int = 0
    pause_ends: bool = False
    dead: Sequence[MessageInfo] = ()
    unfetched: bool = False

    @property
    def waits(self) -> bool:
        """Whether more may be handed out at a moment that `plan_sleep` returns."""
        return self.held or self.pause_ends

    @property
    def has_all(self) -> bool:
        """Whether nothing is left that is due, except what a limit holds back."""
        has_more = self.unfetched or (self.held and self.claimed > len(self.messages))
        return self.claimed < max(self.limit, 1) and not has_more


class ClaimNames:
    """Names for the claims of one consumer, by shard.

    A claim whose reply was lost keeps its name. Repeated, it gets the same answer and costs no lease and no attempt,
    however long the server was away.
    """

    def __init__(self) -> None:
        self.run = secrets.token_hex(8)
        self._numbers = itertools.count()
        self._open: dict[str, tuple[str, float]] = {}

    def of(self, shard: str) -> tuple[str, float]:
        """Return the name of the next claim, and when it was first made, by `lease_now`."""
        if shard not in self._open:
            self._open[shard] = f"{self.run}{next(self._numbers):016x}", lease_now()
        return self._open[shard]

    def answered(self, shard: str) -> None:
        """Let the next claim have a name of its own."""
        self._open.pop(shard, None)


class NextMessages:
    """The message that each shard is expected to hand out next, to a consumer that claims one message at a time.

    Its envelope is fetched in the round trip of that claim. While other consumers take most of the expected messages,
    only some claims look for the next one.
    """

    def __init__(self) -> None:
        self._ids: dict[QueueCommands, str] = {}
        self._resting = 0  # claims that do not look

    def take(self, scripts: QueueCommands) -> str:
        """Return the id of the message that a shard is expected to hand out now, or ""."""
        return self._ids.pop(scripts, "")

    def look(self, scripts: QueueCommands) -> list[Command[Any]]:
        """Return the call that looks for the message after the one that is claimed, if it is time for that."""
        self._resting = max(0, self._resting - 1)
        return [] if self._resting else [scripts.page("ready", 1)]

    def note(self, scripts: QueueCommands, found: Claimed, expected: str, seen: Sequence[Any]) -> None:
        """Note what a claim has brought, and what the look beside it has seen; large messages are not expected."""
        if expected and found.ids != [expected]:
            self._resting = MISSED_CLAIMS
        elif found.ids and not found.has_large and seen and isinstance(seen[0], list) and seen[0]:
            self._ids[scripts] = seen[0][0]


def claim(
    context: QueueContext,
    make: Callable[..., D],
    limit: int,
    lease: int,
    recovering: bool = False,
    expected: Sequence[str] = (),
    consumer: str = "",
    names: ClaimNames | None = None,
    following: NextMessages | None = None,
) -> Operation[Batch]:
    """Promote due messages and hand out up to `limit` of all shards, with a lease of `lease` ms.

    It takes no more than one round trip can fetch, by their mean size; the batch says how many it asked for. If they
    are larger than that, the first ones are fetched now, and the others by the next claims.

    The envelopes of the `expected` messages, one a shard or "", are fetched in the claim's own round trip. So an idle
    consumer handles the single message that it wakes for one round trip earlier.

    With `recovering`, deliveries whose lease ran out are taken back first, in the same round trip. Messages that were
    handed out before and not fetched, because the connection failed in between, are fetched before all others.

    Deliveries that must not reach a handler are settled here: payload gone or unreadable, or id not UTF-8 → dead;
    expired → counted as expired; past its limit (its last consumer was lost) → dead.

    Args:
        consumer: the name of the consumer.
        names: of its claims; None for claims that cannot be repeated.
        following: what is expected next if it claims one message at a time; a claim of one message fills it.
    """
    if context.wishes.left:
        yield from configure.declare(context)
    shards = yield from context.opened()
    context.tell_ignored_keys()
    limit = min(limit, context.claims.budget.count(lease))
    awaited = dict(zip(shards, expected, strict=False))  # the number of shards may just have become known
    taken = _Taken(context, make)
    try:
        if context.claims.is_owed:
            yield from taken.take_unfetched(limit)
        for scripts in context.claims.rotated(shards):
            share = limit - len(taken.messages)
            if taken.is_full or share <= 0 < limit:
                break
            after = following if share == 1 else None
            asking = _Asking(context.watch, scripts, min(share, MAX_IDS), lease, consumer, names, after)
            yield from taken.take_from(asking, recovering, awaited.get(scripts, ""))
    except DelayqError:
        if taken.is_empty:
            raise  # otherwise handed-out messages must reach a handler first; the next claim raises the error
    finally:  # until then a heartbeat renews them, even while another shard delays the claim
        for unread in taken.fetched:
            context.claims.fetching.remove(unread)
    for shard, error in taken.errors.items():
        context.outages.met(shard, error)
    if names is None:
        taken.raise_lost()
    return taken.batch(limit)


class _Taken(Generic[D]):
    """What a claim has brought so far.

    Attributes:
        fetched: what was handed out.
        errors: of the shards that are unavailable, by the name of a key; they do not stop the others.
        is_full: whether messages had to wait for the next claim, since the others were large.
    """

    def __init__(self, context: QueueContext, make: Callable[..., D]) -> None:
        self._context = context
        self._make = make
        self.messages: list[D] = []
        self.dead: list[MessageInfo] = []
        self.fetched: list[unfetched.ClaimedUnfetched] = []
        self.errors: dict[str, DelayqError] = {}
        self._claimed = self.failed = 0
        self._held = self._pause_ends = self.is_full = False

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to return."""
        return not (self.messages or self.failed or self.dead)

    def batch(self, limit: int) -> Batch:
        left = any(each.scripts.keys.meta not in self.errors for each in self._context.claims.unfetched)
        dead = tuple(self.dead)
        return Batch(self.messages, self._claimed, limit, self._held, self.failed, self._pause_ends, dead, left)

    def raise_lost(self) -> None:
        """Raise the error of a lost reply if there is nothing else: a receiver must not hear that there is nothing."""
        lost = [*late_claims.take_lost(self._context), *filter(late_claims.is_lost, self.errors.values())]
        if lost and self.is_empty:
            raise lost[0]

    def take_unfetched(self, limit: int) -> Operation[None]:
        """Fetch up to `limit` messages that were handed out before."""
        late_claims.arrived(self._context)
        while not self.is_full:
            unread = unfetched.take(self._context, limit - len(self.messages), self.errors)
            if unread is None:
                break
            yield from self._fetch(unread)

    def take_from(self, asking: _Asking, recovering: bool, expected: str) -> Operation[None]:
        """Claim on a shard; raises its error if no shard is available."""
        context, shard = self._context, asking.scripts.keys.meta
        if self.errors and shard in self.errors:
            return
        try:
            found, envelopes = yield from _hand_out(context, asking, recovering, expected)
        except DelayqError as error:
            if isinstance(error, ServerUnreachable) and not context.outlives(error):
                raise
            self.errors[shard] = error
            if len(self.errors) == len(context.shards) and not all(
                isinstance(each, Silent) for each in self.errors.values()
            ):
                raise
            return
        self._pause_ends |= found.pause_ends
        if found.held is not None or found.ids:  # else it may be paused
            context.claims.is_limited, self._held = found.held is not None, bool(found.held)
        if found.ids:
            yield from self._fetch(
                unfetched.ClaimedUnfetched(asking.scripts, found, asking.lease, asking.asked), envelopes
            )

    def _fetch(
        self, unread: unfetched.ClaimedUnfetched, envelopes: list[bytes | None] | None = None
    ) -> Operation[None]:
        context, tries_one = self._context, unread.failures > 0
        self.fetched.append(unread)
        context.claims.fetching.append(unread)
        try:
            yield from unfetched.confirm(unread)  # as the claim may have been repeated, long after it was first made
            if not unread.found.ids:
                return
            count = len(unread.found.ids)
            admitted = yield from open_messages(context, self._make, unread, envelopes)
        except DelayqError as error:
            if not isinstance(error, ServerNotReady | ServerUnreachable):  # an outage may take long
                unread.refused()
            unread.was_away = context.outlives(error)
            context.claims.unfetched.append(unread)
            if not unread.was_away:
                raise
            self.errors[unread.scripts.keys.meta] = error
            return
        self.is_full = len(unread.found.ids) < count and not tries_one
        unread.messages = admitted.messages
        self._claimed += len(unread.found.ids)
        self.messages += admitted.messages
        self.failed += admitted.failed
        self.dead += admitted.dead


def claim_all(
    context: QueueContext,
    make: Callable[..., D],
    limit: int,
    lease: int,
    consumer: str,
    is_cancelled: Callable[[], bool] = bool,
) -> Operation[Batch]:
    """Claim for a receiver: up to `limit` messages, in round trips, while the first ones keep most of their lease.

    Nobody renews the leases of messages that are not fetched by then: they are handed back.
    """
    end = lease_now() + lease / 1000 * LEASE_SHARE
    batch, left = (yield from claim(context, make, limit, lease, True, consumer=consumer)), limit
    while (batch.unfetched or (batch.messages and batch.claimed == batch.limit)) and batch.claimed < left:
        if lease_now() >= end or is_cancelled():
            break
        left -= batch.claimed
        try:
            more = yield from claim(context, make, left, lease, consumer=consumer)
        except DelayqError:  # the next call raises it
            return batch
        batch = more._replace(messages=batch.messages + more.messages)
    if batch.unfetched:
        with contextlib.suppress(DelayqError):
            yield from unfetched.release(context)
    return batch


class _Asking:
    """A claim on one shard, which may be repeated.

    Attributes:
        asked: when the lease may have begun, by `lease_now`.
        following: what is expected after it; None if nothing is.
    """

    def __init__(
        self,
        watch: Watch,
        scripts: QueueCommands,
        limit: int,
        lease: int,
        consumer: str,
        names: ClaimNames | None,
        following: NextMessages | None,
    ) -> None:
        self._args = (limit, lease, consumer)
        self._watch = watch
        self._by: int | str = ""
        self.scripts = scripts
        self.lease = lease
        self._names = names
        self.takes_some = limit > 0
        self.following = following
        self.asked = 0.0

    def command(self) -> Command[Claimed]:
        if self._names and self.takes_some:
            name, self.asked = self._names.of(self.scripts.keys.meta)
        else:
            name, self.asked = "", lease_now()
        self._by = self._watch.claims_by(self.scripts.keys.meta)
        return self.scripts.ready_to_unack(*self._args, name, self._by)

    def was_late(self, reply: Claimed | DelayqError) -> bool:
        """Whether nothing was handed out since the server has run it late, or since its clock was set forward."""
        return isinstance(self._by, int) and isinstance(reply, Claimed) and reply.now_ms > self._by

    def late(self, reply: Unanswered) -> late_claims.LateClaim:
        """Return this claim, whose reply has not come yet."""
        is_named = self._names is not None
        return late_claims.LateClaim(self.scripts, reply, self.lease, self.asked, self.answered, is_named)

    def answered(self, reply: Claimed | DelayqError) -> Claimed | DelayqError:
        """Give the next claim a new name once the server has answered this one."""
        if self._names and self.takes_some and isinstance(reply, Claimed):
            self._names.answered(self.scripts.keys.meta)
        return reply


def _hand_out(
    context: QueueContext, asking: _Asking, recovering: bool, expected: str
) -> Operation[tuple[Claimed, list[bytes | None] | None]]:
    """Return what was handed out and, if that is only the expected message, its envelope; raise the shard's error."""
    scripts, following = asking.scripts, asking.following
    if context.claims.late:
        late_claims.check_shard(context, scripts)
    if following is not None:
        expected = expected or following.take(scripts)
    calls: list[Command[Any]] = [context.watch.look(scripts, is_consumer=False)] if recovering else []
    calls += [scripts.pending_to_ready(), asking.command()]
    fetching: list[Command[Any]] = [scripts.envelopes([expected])] if expected else []
    looking = following.look(scripts) if following is not None else []
    replies = yield [*calls, *fetching, *looking]
    *before, reply = replies[: len(calls)]
    envelopes = replies[len(calls)] if expected else None
    found = asking.answered(reply)
    if following is not None and isinstance(found, Claimed):
        following.note(scripts, found, expected, replies[len(calls) + len(fetching) :])
    if recovering and isinstance(before[0], int):
        context.sweeps.leases_lost += before[0]
    is_empty = asking.takes_some and isinstance(found, Claimed) and not (found.ids or found.held)
    if is_empty and (asking.was_late(found) or any(isinstance(each, int) and each > 0 for each in before)):
        # A server whose clock was set forward has shown its time by now; or one that lost the promote script but not
        # the claim script has claimed before it promoted.
        (reply,), envelopes = (yield [asking.command()]), None
        found = asking.answered(reply)
    errors = [each for each in (found, *before) if isinstance(each, DelayqError)]
    if not errors:
        context.outages.over(scripts.keys.meta)
    if isinstance(found, Claimed) and found.ids:
        alone = found.ids == [expected] and not isinstance(envelopes, DelayqError)
        return found, envelopes if alone else None
    if isinstance(found, Unanswered):
        context.claims.late.append(asking.late(found))
    if errors:
        raise errors[0]
    return unwrap(found), None  # nothing is due


def recover(context: QueueContext) -> Operation[int | None]:
    """Take back a bounded number of deliveries whose lease ran out, on all shards.

    Returns:
        how many, at least MAX_MOVED if there is more to do at once; None if a shard refused.
    """
    shards = yield from context.opened()
    results = yield [context.watch.look(scripts, is_consumer=True) for scripts in shards]
    for scripts, error in zip(shards, results, strict=True):
        if isinstance(error, DelayqError) and not isinstance(error, ServerNotReady | ServerUnreachable):
            context.watch.answered(scripts.keys.meta)  # a refusal is not an outage
        is_logged = isinstance(error, ServerUnreachable) or context.outlives(error)  # as an outage, by claims
        if isinstance(error, DelayqError) and not is_logged:
            log.error("recovery failed", queue=context.name, error=str(error))
    lost = sum(each for each in results if isinstance(each, int))
    context.sweeps.leases_lost += lost
    is_behind = yield from key_slots.look_through(context)
    if any(isinstance(each, DelayqError) for each in results):
        return None
    return max(lost, MAX_MOVED) if is_behind else lost
