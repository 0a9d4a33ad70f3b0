"""How much memory messages take on a real server."""

from __future__ import annotations

from delayq import Outgoing, Queue
from delayq.model.footprint import Shape
from tests.harness.servers import RedisServer

YEAR = 31_536_000  # seconds until the first message is due


def used_by(server: RedisServer, count: int, shape: Shape, unique_for: float | None = None) -> int:
    """Return by how many bytes a server's memory grows with `count` pending messages; empties the server first.

    Args:
        unique_for: seconds for which their ids are reserved, or None.
    """
    _send(server, 1, shape, unique_for)  # this loads the scripts
    server.flush()
    before = _used(server)
    _send(server, count, shape, unique_for)
    return _used(server) - before


def _send(server: RedisServer, count: int, shape: Shape, unique_for: float | None) -> None:
    with Queue(shape.queue, url=server.url, prefix=shape.prefix) as queue:
        queue.send_many(
            Outgoing(bytes(shape.payload), delay=YEAR + number, id=f"{number:0{shape.id}}", unique_for=unique_for)
            for number in range(count)
        )


def _used(server: RedisServer) -> int:
    with server.client() as client:  # the only client, because the buffers of others would count
        return int(client.info("memory")["used_memory"])
