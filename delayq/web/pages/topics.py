"""Topics: all of a server."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from delayq.errors import DelayqError
from delayq.model.record import GroupInfo
from delayq.operations.topics import group_admin, read
from delayq.web import path_params, render
from delayq.web.render import NavLink
from delayq.web.servers import DashboardServer

PAGE = 50
AT_ONCE = 10


class TopicRow(NamedTuple):
    """A topic, as its row tells it; `error` says why it could not be read."""

    name: str
    length: int = 0
    groups: tuple[GroupInfo, ...] = ()
    error: str = ""


async def topics(request: Request) -> Response:
    """List the topics of a server, a page of them."""
    server, after = path_params.server_of(request), request.query_params.get("after", "")
    names = [name for name in await server.topic_names() if name > after]
    rows: list[TopicRow] = []
    for start in range(0, min(PAGE, len(names)), AT_ONCE):
        rows += await asyncio.gather(*(_listed(server, name) for name in names[start : min(PAGE, start + AT_ONCE)]))
    return render.page(request, "topics.html", rows=rows, after=rows[-1].name if len(names) > PAGE else None)


async def _listed(server: DashboardServer, name: str) -> TopicRow:
    try:
        topic = await server.topic(name)
        length = await topic.execute(read.length)  # what is due but not appended is left so
        return TopicRow(name, length, tuple(await topic.execute(group_admin.groups)))
    except DelayqError as error:
        return TopicRow(name, error=str(error))


NAV = NavLink("Topics", "topics")
ROUTES = [Route("/{server:name}/topics", topics, name="topics")]
