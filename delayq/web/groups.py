"""Groups of topics, as requests name them."""

from __future__ import annotations

from starlette.exceptions import HTTPException

from delayq.aio import Topic
from delayq.errors import InvalidInput, UnknownGroup
from delayq.model.record import GroupInfo
from delayq.operations.topics import group_admin

MOST_CLAIMED = 100


async def group_info(topic: Topic, group: str) -> GroupInfo:
    """Return a group, whose lag may be counted only in part; raises a 404 if it does not exist."""
    try:
        return await topic.execute(group_admin.info, group, most_calls=1)
    except UnknownGroup as error:
        raise HTTPException(404, f"Topic {topic.name} has no group {group}.") from error


async def check_known(topic: Topic, group: str, consumer: str) -> None:
    """Raise InvalidInput if a group has no consumer with this name."""
    known = [each.name for each in await topic.execute(group_admin.consumers, group)]
    if consumer not in known:
        raise InvalidInput(f"group {group} has no consumer {consumer}: choose an existing one, or say that it is new")
