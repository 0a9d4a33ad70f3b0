"""One run of a consumer of a topic on blocking connections: makes the moves of `delayq.topic_turns`."""

from __future__ import annotations

from collections.abc import Callable

from delayq import bell
from delayq.group import REQUEUED, Group
from delayq.member import Member
from delayq.mover import Mover
from delayq.moves import Ring
from delayq.topic_turns import TopicTurns
from delayq.topics import grouping
from delayq.topics.record import Record
from delayq.workers import Workers


class TopicLoop(TopicTurns, Mover):
    """The state of a run; the arguments are those of `TopicTurns`, and what makes the workers, as of `Loop`."""

    _workers: Workers[Record]
    _bells: list[bell.StreamBell]

    def __init__(
        self,
        group: Group,
        member: Member,
        hire: Callable[[Callable[[Record], bool], Callable[[], None]], Workers[Record]],
        burst: bool = False,
        most: int | None = None,
    ) -> None:
        super().__init__(group.core, member, REQUEUED, burst, most)
        Mover.__init__(self, group.connection, hire(self._holding.stands, self._nudge))

    def connect(self) -> None:
        """Make sure that the group can be served.

        Raises:
            ServerError, UnknownGroup
        """
        try:
            self._do(grouping.consumers(self._core, self._member.group))
        except BaseException:
            self._wakeup.close()
            raise

    def _ring(self, ring: Ring) -> bool:
        shards = self._core.shards
        if ring.seen and len(self._bells) != len(shards):
            client = self._connection.client
            for each in self._bells:
                each.close()
            self._bells = [bell.StreamBell(client, each.keys.stream, each.keys.waking) for each in shards]
        for each, seen in zip(self._bells, ring.seen, strict=False):
            each.seen = seen
        return super()._ring(ring)
