"""A topic, as it is seen: its length, its groups, and what is wrong with them."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

from delayq.aio import Topic
from delayq.errors import DelayqError
from delayq.model.health import WINDOW, Trouble, group_troubles
from delayq.model.record import GroupInfo
from delayq.operations.topics import group_admin, read
from delayq.web.charts import HOUR, LagCount
from delayq.web.servers import DashboardServer

MOST_ASKED = 50
"""Groups with a lag whose consumers are asked for: each costs a call."""

MOST_TOPICS = 1000
"""Topics that are watched; metrics read as many."""

MOST_DRAWN = 200
"""Topics whose lags of the last hour are kept for a chart: those that were looked at last."""

MOST_LAGS = 20
"""Of a topic: the longest ones."""

REMEMBER_SECONDS = 60.0
"""Between two counts of a topic's groups that are remembered."""


class TopicSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, as it was seen.

    Attributes:
        length: how many records it holds.
        groups: by name.
        troubles: of the groups in trouble, by their names.
        error: why it could not be read, or empty.
    """

    name: str
    length: int = 0
    groups: tuple[GroupInfo, ...] = ()
    troubles: dict[str, list[Trouble]] = {}
    error: str = ""

    @property
    def figures(self) -> dict[str, list[Trouble]]:
        """What is kept of it: the troubles of its groups."""
        return self.troubles

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the troubles of its groups, and ``unreadable`` where it could not be read."""
        found = {each.code for troubles in self.troubles.values() for each in troubles}
        return (*sorted(found), *(["unreadable"] if self.error else []))


class TopicWatcher:
    """Looks at the topics of a server again and again, and remembers for some minutes how far their groups were."""

    def __init__(self, server: DashboardServer) -> None:
        self._server = server
        self._earlier: dict[str, deque[tuple[float, Sequence[GroupInfo]]]] = {}
        self._lags: dict[str, deque[LagCount]] = {}

    async def names(self) -> list[str]:
        """Return the names of the topics that are watched: the first thousand."""
        return (await self._server.topic_names())[:MOST_TOPICS]

    async def look(self, name: str, most_calls: int = group_admin.MAX_LAG_CALLS) -> TopicSnapshot:
        """Look at a topic; what is due but not appended is left so.

        Args:
            most_calls: that count a lag which the server does not know, of each group and shard.
        """
        try:
            topic = await self._server.topic(name)
            length = await topic.execute(read.length)
            groups = await topic.execute(group_admin.groups, most_calls)
            found = await _troubles(topic, groups, {each.name: each for each in self._remember(name, groups)})
        except DelayqError as error:
            return TopicSnapshot(name=name, error=str(error))
        return TopicSnapshot(name=name, length=length, groups=tuple(groups), troubles=found)

    def lags(self, name: str) -> Sequence[LagCount]:
        """Return how far the groups of a topic were behind within the last hour, whenever somebody looked."""
        return list(self._lags.get(name, ()))

    async def glance(self, name: str) -> TopicSnapshot:
        """Look at a topic for its troubles: a lag is counted for a moment only."""
        return await self.look(name, 1)

    def _remember(self, name: str, groups: Sequence[GroupInfo]) -> Sequence[GroupInfo]:
        """Return the groups of a topic as they were some minutes ago, and remember how they are now."""
        now = time.monotonic()
        known = self._earlier[name] = self._earlier.pop(name, deque())
        if len(self._earlier) > MOST_TOPICS:
            del self._earlier[next(iter(self._earlier))]
        if not known or known[-1][0] <= now - REMEMBER_SECONDS:
            known.append((now, groups))
            self._keep_lags(name, groups)
        while known[0][0] < now - WINDOW.total_seconds():
            known.popleft()
        return known[0][1]

    def _keep_lags(self, name: str, groups: Sequence[GroupInfo]) -> None:
        now = dt.datetime.now(dt.UTC)
        kept = self._lags[name] = self._lags.pop(name, deque())
        if len(self._lags) > MOST_DRAWN:
            del self._lags[next(iter(self._lags))]
        longest = sorted(groups, key=lambda each: -each.lag)[:MOST_LAGS]
        kept.append(LagCount(now, {each.name: each.lag for each in longest}))
        while kept[0].at < now - HOUR:
            kept.popleft()


async def _troubles(
    topic: Topic, groups: Sequence[GroupInfo], earlier: Mapping[str, GroupInfo]
) -> dict[str, list[Trouble]]:
    waiting = [each.name for each in groups if each.lag][:MOST_ASKED]
    asked = await asyncio.gather(*(topic.execute(group_admin.consumers, each) for each in waiting))
    members = dict(zip(waiting, asked, strict=True))
    found = {each.name: group_troubles(each, members.get(each.name), earlier.get(each.name)) for each in groups}
    return {name: troubles for name, troubles in found.items() if troubles}
