"""From the path of a request to the server, the queue and the topic that it names."""

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
    """Any name or id as one step of a path: with slashes, too, and dots, which browsers would take for steps up."""

    regex = "[^/]+"

    def convert(self, value: str) -> str:
        """Read a step."""
        return unquote(value, errors="surrogateescape")

    def to_string(self, value: str) -> str:
        """Write a step; a link quotes it once more."""
        steps_up = value in {".", ".."}
        return value.replace(".", "%2E") if steps_up else _FOREIGN.sub(_byte, value.translate(_QUOTED))


_QUOTED = str.maketrans({"%": "%25", "/": "%2F"})
_FOREIGN = re.compile("[\udc80-\udcff]")  # bytes of an id that is no UTF-8


def _byte(match: re.Match[str]) -> str:
    return f"%{ord(match[0]) - 0xDC00:02X}"


register_url_convertor("name", NameParam())


def server_of(request: Request) -> DashboardServer:
    """Return the server that the path names; raises a 404 when there is none."""
    name = request.path_params["server"]
    server: DashboardServer | None = request.app.state.servers.get(name)
    if server is None:
        raise HTTPException(404, f"There is no server {name} here.")
    return server


async def queue_of(request: Request) -> Queue:
    """Return the queue that the path names; raises a 404 when it is not recorded."""
    server, name = server_of(request), request.path_params["queue"]
    await _check(server, "queue", name)
    return await server.queue(name)


async def topic_of(request: Request) -> Topic:
    """Return the topic that the path names; raises a 404 when it is not recorded."""
    server, name = server_of(request), request.path_params["topic"]
    await _check(server, "topic", name)
    return await server.topic(name)


async def _check(server: DashboardServer, kind: Kind, name: str) -> None:
    if not await server.has(kind, name):
        raise HTTPException(404, f"There is no {kind} {name} on {server.name}: nothing was ever sent to it.")
