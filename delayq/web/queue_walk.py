"""A walk over the queues of a server by name, a page at a time, for pages that list what is in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from delayq.aio import Queue
from delayq.errors import DelayqError
from delayq.web.servers import DashboardServer

AT_ONCE = 10
"""The number of queues that are read at once."""

ENOUGH = 50
"""The number of items after which a page reads no further queue."""

SECONDS = 0.5
"""The time after which a page reads no further queue."""

T = TypeVar("T")


class QueueWalk(NamedTuple, Generic[T]):
    """What was found in some queues of a server.

    Attributes:
        found: what was found in each queue, without empty ones.
        errors: why queues could not be read, by name.
        looked_at: the number of queues that were read.
        after: the name of the last of them; None if no queue follows.
    """

    found: list[T]
    errors: dict[str, str]
    looked_at: int
    after: str | None


async def walk(
    server: DashboardServer, after: str, look: Callable[[Queue], Awaitable[T]], size: Callable[[T], int]
) -> QueueWalk[T]:
    """Read the queues after a name, until enough is found or the time is up.

    Args:
        look: reads a queue.
        size: returns the number of items found in it.
    """
    names = [name for name in await server.all_names("queue") if name > after]
    found: list[T] = []
    errors: dict[str, str] = {}
    looked_at, until = 0, time.monotonic() + SECONDS
    while looked_at < len(names) and (not looked_at or time.monotonic() < until):
        part = names[looked_at : looked_at + AT_ONCE]
        seen = await asyncio.gather(*(_look(server, name, look) for name in part))
        errors |= {name: each for name, each in zip(part, seen, strict=True) if isinstance(each, str)}
        found += [each for each in seen if not isinstance(each, str) and size(each)]
        looked_at += len(part)
        if sum(map(size, found)) >= ENOUGH:
            break
    return QueueWalk(found, errors, looked_at, names[looked_at - 1] if looked_at < len(names) else None)


async def _look(server: DashboardServer, name: str, look: Callable[[Queue], Awaitable[T]]) -> T | str:
    try:
        return await look(await server.queue(name))
    except DelayqError as error:
        return str(error)
