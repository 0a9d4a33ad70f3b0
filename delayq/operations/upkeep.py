"""Upkeep of a queue, done by those who take its messages: consumers, and programs that call `receive`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from delayq.errors import DelayqError, ServerUnreachable
from delayq.log import log
from delayq.model.interval import FALLBACK_MS, Interval
from delayq.operations import garbage, groups, key_slots, schedule_chain
from delayq.operations.claim import recover
from delayq.operations.queue_context import QueueContext
from delayq.operations.schedules import DeclaredSchedules, Prepared
from delayq.protocol.operation import Operation, gather, unwrap
from delayq.protocol.queue_commands import MAX_MOVED

CLEANUP_SECONDS = 60.0  # between two searches for old dead letters and for schedules that have stopped

T = TypeVar("T")


class Upkeep:
    """The upkeep that programs calling `receive` do beside their claims, as often as a consumer.

    A page of each duty shares the round trips of a claim. The claim itself takes back lost deliveries.
    """

    def __init__(self, context: QueueContext) -> None:
        self._context = context
        self._collection = Interval(FALLBACK_MS / 1000)
        self._cleanup = Interval(CLEANUP_SECONDS)

    @property
    def is_due(self) -> bool:
        """Whether the next claim includes a duty."""
        return not (self._collection.left() and self._cleanup.left())

    def beside(self, claim: Operation[T]) -> Operation[T]:
        """Run a claim; if upkeep is due, do it in the same round trips."""
        duties = list(self._duties())
        if duties:
            yield from self._context.opened()
        if not (duties and self._context.is_open):  # a queue that is not recorded needs no upkeep
            return (yield from claim)
        claimed, *results = yield from gather(claim, *duties)
        for error in results:
            is_reported = isinstance(error, ServerUnreachable) or self._context.outlives(error)  # by the claim
            if isinstance(error, DelayqError) and not is_reported:
                log.error("upkeep failed", queue=self._context.name, error=str(error))
        result: T = unwrap(claimed)
        return result

    def _duties(self) -> Iterator[Operation[object]]:
        if self._collection.due():
            yield self._collect()
            yield self._look_through()
        if self._cleanup.due():
            yield clean_up(self._context, self._cleanup)

    def _look_through(self) -> Operation[None]:
        """Free slots of keys; continue with the next claim if there are more to check."""
        if (yield from key_slots.look_through(self._context)):
            self._collection.now()

    def _collect(self) -> Operation[None]:
        """Delete the payloads of a page of garbage; continue with the next claim if there is more."""
        found = yield from garbage.find(self._context)
        if found and (yield from garbage.delete(found)):
            self._collection.now()


class ConsumerUpkeep:
    """The upkeep that a consumer does between its exchanges, and the collection that it does beside its claims.

    A collection takes back deliveries whose lease has ended, and finds garbage. The rest is done once a minute: it
    purges old dead letters, revives schedules, and stores those declared here.

    Args:
        declared: schedules that have functions here.
    """

    def __init__(self, context: QueueContext, declared: Iterable[Prepared]) -> None:
        self._context = context
        self._schedules = DeclaredSchedules(context, declared)
        self._collection = Interval(FALLBACK_MS / 1000)
        self._cleanup = Interval(CLEANUP_SECONDS)

    def begin(self) -> Operation[None]:
        """Check that the queue can be served, and store the declared schedules."""
        yield from self._schedules.store()

    @property
    def is_due(self) -> bool:
        """Whether to clean up now."""
        return self._cleanup.left() == 0

    def clean_up(self) -> Operation[bool]:
        """Do what is done once a minute: a page, so that messages need not wait; return whether there may be more."""
        self._cleanup.due()
        yield from self._context.opened(create=True)
        has_more = yield from clean_up(self._context, self._cleanup)
        yield from self._schedules.restore()
        return has_more

    def collection(
        self, early: float = 0.0
    ) -> tuple[Operation[int | None], Operation[garbage.Found]] | tuple[None, None]:
        """Return the parts of a collection if the next claim includes one: it is due within `early` seconds."""
        if not self._collection.due(early):
            return None, None
        return recover(self._context), garbage.find(self._context)

    def collected(self, recovered: int | None, found: garbage.Found) -> Operation[bool]:
        """Delete what a collection has found; return whether there is more, which the next claim collects."""
        has_garbage = (yield from garbage.delete(found)) if found else False
        has_more = has_garbage or (recovered or 0) >= MAX_MOVED
        if has_more:
            self._collection.now()
        return has_more

    def hasten(self) -> None:
        """Let the next claim include a collection: a lease has ended, or something else is due."""
        self._collection.now()

    def left(self, is_idle: bool) -> float:
        """Return the seconds until the next upkeep; an idle consumer collects when it wakes for something else."""
        return self._cleanup.left() if is_idle else min(self._cleanup.left(), self._collection.left() + 0.001)

    @property
    def collection_left(self) -> float:
        """The seconds until the next collection."""
        return self._collection.left()


def clean_up(context: QueueContext, interval: Interval) -> Operation[bool]:
    """Purge a page of old dead letters, revive a page of schedules, and check a page of groups.

    Returns:
        whether there may be more.

    Args:
        interval: the interval of this duty, which is due at once if there may be more.

    Raises:
        DelayqError: the error of one of them.
    """
    more, unswept, *armed = yield from gather(
        garbage.purge_old(context),
        groups.sweep(context),
        schedule_chain.revive(context),
        schedule_chain.bring_back(context),
    )
    is_unfinished = more is True or unswept is True or context.sweeps.armed > 0
    if is_unfinished:
        interval.now()
    for result in (more, unswept, *armed):
        context.unwrap(result, None)
    return is_unfinished
