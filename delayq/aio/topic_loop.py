"""One run of a consumer of a topic on an event loop: makes the moves of `delayq.topic_turns`."""

from __future__ import annotations

from collections.abc import Callable

from delayq.aio import bell
from delayq.aio.crew import Crew
from delayq.aio.group import Group
from delayq.aio.mover import Mover
from delayq.group import REQUEUED
from delayq.member import Member
from delayq.moves import Ring
from delayq.topic_turns import TopicTurns
from delayq.topics import grouping
from delayq.topics.record import Record
from delayq.workers import Workers


class TopicLoop(TopicTurns, Mover):
    """The state of a run; the arguments are those of `TopicTurns`, and what makes the workers, as of `Loop`."""

    _workers: Crew[Record] | Workers[Record]
    _bells: list[bell.StreamBell]

    def __init__(
        self,
        group: Group,
        member: Member,
        hire: Callable[[Callable[[Record], bool], Callable[[], None]], Crew[Record] | Workers[Record]],
        burst: bool = False,
        most: int | None = None,
    ) -> None:
        super().__init__(group.core, member, REQUEUED, burst, most)
        Mover.__init__(self, group.connection, hire(self._holding.stands, self._nudge))

    async def connect(self) -> None:
        """Make sure that the group can be served.

        Raises:
            ServerError, UnknownGroup
        """
        await self._do(grouping.consumers(self._core, self._member.group))

    async def _ring(self, ring: Ring) -> bool:
        shards = self._core.shards
        if ring.seen and len(self._bells) != len(shards):
            client = await self._connection.connected()
            for each in self._bells:
                await each.close()
            self._bells = [bell.StreamBell(client, each.keys.stream, each.keys.waking) for each in shards]
        for each, seen in zip(self._bells, ring.seen, strict=False):
            each.seen = seen
        return await super()._ring(ring)
