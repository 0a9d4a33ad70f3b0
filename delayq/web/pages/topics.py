"""All topics of a server."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from delayq.web import path_params, render
from delayq.web.poller import watch_of
from delayq.web.render import NavLink
from delayq.web.routes import VIEW, Page
from delayq.web.topic_snapshot import TopicSnapshot

PAGE = 50
AT_ONCE = 10


async def topics(request: Request) -> Response:
    """List a page of a server's topics."""
    server, after = path_params.server_of(request), request.query_params.get("after", "")
    names = [name for name in await server.topic_names() if name > after]
    await server.check_answers()  # the list of names outlives a server that stops answering
    watch = watch_of(request)
    rows: list[TopicSnapshot] = []
    for start in range(0, min(PAGE, len(names)), AT_ONCE):
        listed = names[start : min(PAGE, start + AT_ONCE)]
        rows += await asyncio.gather(*(watch.topics.look(name) for name in listed))
    return render.page(
        request,
        "topics.html",
        rows=rows,
        after=rows[-1].name if len(names) > PAGE else None,
        is_partial=server.is_partial,
        search_error=server.search_error,
    )


NAV = NavLink("Topics", "topics")
ROUTES = [Page(VIEW, "/{server:name}/topics", topics, name="topics")]
