"""A topic, as it is seen: its length, its groups, and what is wrong with them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from delayq.aio import Topic
from delayq.errors import DelayqError
from delayq.model.health import Trouble, group_troubles
from delayq.model.record import GroupInfo
from delayq.operations.topics import group_admin, read
from delayq.web.servers import DashboardServer

MOST_ASKED = 50
"""Groups with a lag whose consumers are asked for: each costs a call."""


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


async def look(
    server: DashboardServer, name: str, earlier: Iterable[GroupInfo] = (), most_calls: int = group_admin.MAX_LAG_CALLS
) -> TopicSnapshot:
    """Look at a topic; what is due but not appended is left so.

    Args:
        earlier: its groups as they were some minutes ago.
        most_calls: that count a lag which the server does not know, of each group and shard.
    """
    try:
        topic = await server.topic(name)
        length = await topic.execute(read.length)
        groups = await topic.execute(group_admin.groups, most_calls)
        found = await _troubles(topic, groups, {each.name: each for each in earlier})
    except DelayqError as error:
        return TopicSnapshot(name=name, error=str(error))
    return TopicSnapshot(name=name, length=length, groups=tuple(groups), troubles=found)


async def _troubles(
    topic: Topic, groups: Sequence[GroupInfo], earlier: Mapping[str, GroupInfo]
) -> dict[str, list[Trouble]]:
    waiting = [each.name for each in groups if each.lag][:MOST_ASKED]
    asked = await asyncio.gather(*(topic.execute(group_admin.consumers, each) for each in waiting))
    members = dict(zip(waiting, asked, strict=True))
    found = {each.name: group_troubles(each, members.get(each.name), earlier.get(each.name)) for each in groups}
    return {name: troubles for name, troubles in found.items() if troubles}
