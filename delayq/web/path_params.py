"""The server, queue and topic in the path of a request."""

from __future__ import annotations

import re
from urllib.parse import quote

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.aio import Queue, Topic
from delayq.model.credentials import is_unfit_id, is_unfit_name
from delayq.model.text import is_foreign_id, printable_id
from delayq.model.validation import Kind
from delayq.web.request_path import escaped, unescaped
from delayq.web.servers import DashboardServer


class SegmentParam(Convertor[str]):
    """Any name or id as one segment of a path, even with slashes."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Read a segment of the canonical path."""
        return unescaped(value)

    def to_string(self, value: str) -> str:
        """Write a segment of the canonical path."""
        return escaped(value)


class NameParam(SegmentParam):
    """The same in the path of a page: quoted once more, since proxies and browsers may resolve slashes and dots."""

    def convert(self, value: str) -> str:
        """Read a segment."""
        return unescaped(super().convert(value))

    def to_string(self, value: str) -> str:
        """Write a segment; links quote it once more."""
        return value.replace(".", "%2E") if value in {".", ".."} else _CONTROL.sub(_quoted, escaped(value))


_CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f]")  # in the id of another client: the canonical path has none


def _quoted(match: re.Match[str]) -> str:
    return quote(match[0])


register_url_convertor("segment", SegmentParam())
register_url_convertor("name", NameParam())


_MAY_BE = dict.fromkeys(("server", "queue", "topic", "schedule"), is_unfit_name)
"""The parts of a path that are names; others are ids, groups and keys."""


def may_hold_password(request: Request) -> bool:
    """Whether the path has a URL in the place of a name or an id: an error must not show it."""
    return any(_MAY_BE.get(place, is_unfit_id)(text) for place, text in request.path_params.items())


def server_of(request: Request) -> DashboardServer:
    """Return the server in the path; raises a 404 if there is none, or if the path has a URL in the place of a name."""
    if may_hold_password(request):
        raise HTTPException(404, "The path has a URL, or user:password@host, in the place of a name or an id.")
    name = request.path_params["server"]
    server: DashboardServer | None = request.app.state.servers.get(name)
    if server is None:
        raise HTTPException(404, f"This dashboard has no server {name}.")
    return server


async def queue_of(request: Request) -> Queue:
    """Return the queue in the path; raises a 404 if it does not exist."""
    server, name = server_of(request), request.path_params["queue"]
    await _check(server, "queue", name)
    return await server.queue(name)


async def topic_of(request: Request) -> Topic:
    """Return the topic in the path; raises a 404 if it does not exist, or if a group in the path cannot."""
    server, name = server_of(request), request.path_params["topic"]
    await _check(server, "topic", name)
    if is_foreign_id(group := request.path_params.get("group", "")):
        raise HTTPException(404, f"Topic {name} has no group {printable_id(group)}.")
    return await server.topic(name)


async def _check(server: DashboardServer, kind: Kind, name: str) -> None:
    if not await server.has(kind, name):
        raise HTTPException(404, f"Server {server.name} has no {kind} {name}: nothing has been sent to it.")
