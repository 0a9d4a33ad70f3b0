"""The servers of the dashboard, and their details."""

from __future__ import annotations

from starlette.requests import Request

from delayq.aio.doctor import server_health
from delayq.web import path_params
from delayq.web.api.operation import Operation
from delayq.web.api.values import Answer, of
from delayq.web.routes import VIEW
from delayq.web.servers import ASKED_AS


class ServerName(Answer):
    """A server of this dashboard."""

    name: str


class Servers(Answer):
    """The servers of this dashboard."""

    servers: list[ServerName]


class Server(Answer):
    """A Redis server; fields that it does not report are null.

    Attributes:
        clock_offset_seconds: how far its clock is ahead of the dashboard's; negative if it is behind.
        save_points: when it takes snapshots, in the syntax of Redis; empty for never.
        disk_ok: whether its last writes to disk succeeded.
        maxmemory_bytes: 0 for no limit.
        dangers: sentences about what endangers its queues.
        queues: the number of queues, as of the last minute or two.
    """

    name: str
    version: str | None
    clock_offset_seconds: float | None
    maxmemory_policy: str | None
    append_only: bool | None
    save_points: str | None
    disk_ok: bool | None
    used_memory_bytes: int | None
    maxmemory_bytes: int | None
    dangers: list[str]
    queues: int


async def list_servers(request: Request) -> Servers:
    """List the servers."""
    return Servers(servers=[ServerName(name=name) for name in request.app.state.servers])


async def get_server(request: Request) -> Server:
    """Return the version, memory, persistence and clock of a server."""
    found = path_params.server_of(request)
    names = await found.all_names("queue")
    queue = await found.queue(names[0] if names else ASKED_AS)
    health = await server_health(queue)
    return of(
        Server,
        health,
        name=found.name,
        dangers=[str(each) for each in health.dangers()],
        queues=len(names),
    )


OPERATIONS = [
    Operation(VIEW, "/servers", list_servers),
    Operation(VIEW, "/servers/{server}", get_server),
]
