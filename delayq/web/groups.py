"""Groups of topics, as requests name them, and claiming their records."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.aio import Topic
from delayq.aio.topic_group import Group
from delayq.errors import InvalidInput, InvalidName, UnknownGroup
from delayq.model.record import GroupInfo
from delayq.operations.topics.reclaim import Reclaimed, reclaim
from delayq.web import path_params

MOST_CLAIMED = 100


async def group_of(request: Request, topic: Topic | None = None) -> Group:
    """Return the group in the path, which may not exist; raises a 404 if its topic, unless it is given, does not."""
    topic, name = topic or await path_params.topic_of(request), request.path_params["group"]
    try:
        return await topic.group(name, create=False)
    except InvalidName as error:  # no group can have it
        raise missing(topic.name, name) from error


@contextlib.contextmanager
def known(group: Group) -> Iterator[None]:
    """Turn the error for an unknown group into a 404."""
    try:
        yield
    except UnknownGroup as error:
        raise missing(group.topic, group.name) from error


def missing(topic: str, group: str) -> HTTPException:
    """Return the 404 of a group that does not exist."""
    return HTTPException(404, f"Topic {topic} has no group {group}.")


async def group_info(group: Group) -> GroupInfo:
    """Return what is known about a group, whose lag may be counted only in part; raises a 404 if it does not exist."""
    with known(group):
        return await group.info(quick=True)


async def check_known(group: Group, consumer: str) -> None:
    """Raise InvalidInput if a group has no consumer with this name."""
    if consumer not in [each.name for each in await group.consumers()]:
        raise InvalidInput(
            f"group {group.name} has no consumer {consumer}: choose an existing one, or say that it is new"
        )


async def claim(topic: Topic, group: str, consumer: str, idle: float) -> Reclaimed:
    """Claim up to 100 records for a consumer that others have not acked for `idle` seconds."""
    return await topic.execute(reclaim, group, consumer, idle, MOST_CLAIMED, None)
