"""The server, queue and topic in the path of a request."""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request

from delayq.aio import Queue, Topic
from delayq.protocol.discovery import Kind
from delayq.web.servers import DashboardServer


class NameParam(Convertor[str]):
    """Any name or id as one segment of a path, even with slashes, and with dots, which browsers would resolve."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Read a segment."""
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        """Write a segment; links quote it once more."""
        steps_up = value in {".", ".."}
        return value.replace(".", "%2E") if steps_up else _FOREIGN.sub(_byte, value.translate(_QUOTED))


_QUOTED = str.maketrans({"%": "%25", "/": "%2F"})
_FOREIGN = re.compile("[\udc80-\udcff]")  # bytes of an id that is not UTF-8


def _byte(match: re.Match[str]) -> str:
    return f"%{ord(match[0]) - 0xDC00:02X}"


register_url_convertor("name", NameParam())


def server_of(request: Request) -> DashboardServer:
    """Return the server in the path; raises a 404 if there is none."""
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
    """Return the topic in the path; raises a 404 if it does not exist."""
    server, name = server_of(request), request.path_params["topic"]
    await _check(server, "topic", name)
    return await server.topic(name)


async def _check(server: DashboardServer, kind: Kind, name: str) -> None:
    if not await server.has(kind, name):
        raise HTTPException(404, f"Server {server.name} has no {kind} {name}: nothing has been sent to it.")
