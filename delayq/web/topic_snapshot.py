"""A snapshot of a topic: its length, its groups and their troubles."""

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
from delayq.web.charts import HOUR, LagCount
from delayq.web.servers import DashboardServer

MOST_ASKED = 50
"""The number of groups with a lag whose consumers are read: each costs a call."""

MOST_TOPICS = 1000
"""The number of topics that are watched; metrics read as many."""

MOST_DRAWN = 200
"""The number of topics whose lags of the last hour are kept for a chart: the ones viewed last."""

MOST_LAGS = 20
"""The number of lags that are kept of a topic: the longest ones."""

REMEMBER_SECONDS = 60.0
"""Seconds between two remembered counts of a topic's groups."""


class TopicSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A topic, as it was seen.

    Attributes:
        length: the number of its records.
        groups: its groups, by name.
        troubles: the troubles of its groups, by group name.
        error: why it could not be read, or empty.
    """

    name: str
    length: int = 0
    groups: tuple[GroupInfo, ...] = ()
    troubles: dict[str, list[Trouble]] = {}
    error: str = ""

    @property
    def figures(self) -> dict[str, list[Trouble]]:
        """The troubles of its groups, which a sweep keeps."""
        return self.troubles

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the troubles of its groups, and ``unreadable`` if it could not be read."""
        found = {each.code for troubles in self.troubles.values() for each in troubles}
        return (*sorted(found), *(["unreadable"] if self.error else []))


class TopicWatcher:
    """Looks at the topics of a server repeatedly, and remembers their groups' positions for some minutes."""

    def __init__(self, server: DashboardServer) -> None:
        self._server = server
        self._earlier: dict[str, deque[tuple[float, Sequence[GroupInfo]]]] = {}
        self._lags: dict[str, deque[LagCount]] = {}

    async def names(self) -> list[str]:
        """Return the names of the watched topics: the first thousand."""
        return (await self._server.topic_names())[:MOST_TOPICS]

    async def look(self, name: str, quick: bool = False) -> TopicSnapshot:
        """Look at a topic; this does not append due records. `quick` is that of `Topic.groups`."""
        try:
            topic = await self._server.topic(name)
            length = await topic.length(due=False)
            groups = await topic.groups(quick=quick)
            found = await _troubles(topic, groups, {each.name: each for each in self._remember(name, groups)})
        except DelayqError as error:
            return TopicSnapshot(name=name, error=str(error))
        return TopicSnapshot(name=name, length=length, groups=tuple(groups), troubles=found)

    def lags(self, name: str) -> Sequence[LagCount]:
        """Return the lags of a topic's groups over the last hour, as of each look."""
        return list(self._lags.get(name, ()))

    async def glance(self, name: str) -> TopicSnapshot:
        """Look at a topic for its troubles, without counting a lag for long."""
        return await self.look(name, quick=True)

    def _remember(self, name: str, groups: Sequence[GroupInfo]) -> Sequence[GroupInfo]:
        """Return the groups of a topic as of some minutes ago, and remember them as they are now."""
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
    waiting = [each.name for each in groups if each.lag or each.unacked][:MOST_ASKED]
    asked = [(await topic.group(each, create=False)).consumers() for each in waiting]
    members = dict(zip(waiting, await asyncio.gather(*asked), strict=True))
    found = {each.name: group_troubles(each, members.get(each.name), earlier.get(each.name)) for each in groups}
    return {name: troubles for name, troubles in found.items() if troubles}
