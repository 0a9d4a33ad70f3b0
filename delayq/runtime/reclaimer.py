"""The records that other consumers of a group have left unacked, and consumers that are gone."""

from __future__ import annotations

from delayq.model.interval import Interval
from delayq.operations.topics import reclaim, settle
from delayq.operations.topics.topic_context import TopicContext
from delayq.operations.watch import Watch
from delayq.protocol.operation import Operation
from delayq.runtime.group_member import GroupMember

DROP_SECONDS = 600.0  # between two searches for consumers of the group that are gone


class Reclaimer:
    """When a consumer takes over the records of others, and on which shards it still has to search for them."""

    def __init__(self, context: TopicContext, member: GroupMember, watch: Watch) -> None:
        self._context = context
        self._member = member
        self._watch = watch
        self._places: dict[int, str] = {}  # as `reclaim_page` takes them
        self._search = Interval(member.ack_timeout / 2)
        self._drop = Interval(DROP_SECONDS)
        self._announced: list[str] = []  # by shard, the last announcement of records to append, or to take over

    @property
    def are_left(self) -> bool:
        """Whether a search has not reached all shards yet."""
        return bool(self._places)

    def due(self) -> bool:
        """Return whether to take over a page now."""
        return self.are_left or self._search.due()

    def page(self, limit: int) -> Operation[reclaim.Reclaimed]:
        """Take over a page of records that nobody has renewed."""
        member, done = self._member, reclaim.Reclaimed()
        yield from reclaim.reclaim_page(
            self._context,
            member.group,
            member.name,
            member.ack_timeout,
            limit,
            member.max_deliveries,
            self._places,
            done,
            self._watch,
        )
        if self._watch.grace:  # otherwise records of dead consumers would wait for another interval
            self._search.within(self._watch.grace)
        return done

    def now(self) -> None:
        """Search in the next turn."""
        self._search.now()

    def hear(self, announced: list[str]) -> bool:
        """Search in the next turn if one of the shards' last announcements is new; return whether one is."""
        if self._announced == announced:
            return False
        self._announced = announced
        self._search.now()
        return True

    def left(self) -> float:
        """Return the seconds until the next search."""
        return self._search.left()

    def drop_gone(self) -> Operation[None]:
        """Remove the group's consumers that are gone, from time to time."""
        if self._drop.due():
            yield from settle.drop_idle_consumers(self._context, self._member.group)
