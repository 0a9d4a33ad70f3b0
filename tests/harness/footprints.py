"""What messages take of a real server's memory."""

from __future__ import annotations

from delayq import Outgoing, Queue
from delayq.model.footprint import Shape
from tests.harness.servers import RedisServer

YEAR = 31_536_000  # seconds until the first one is due


def used_by(server: RedisServer, count: int, shape: Shape, unique_for: float | None = None) -> int:
    """Return by how many bytes the memory of a server has grown when so many messages wait on it; empties it first.

    Args:
        unique_for: seconds for which their ids are reserved, or None.
    """
    _send(server, 1, shape, unique_for)  # the scripts are loaded once
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
    with server.client() as client:  # the only one: buffers of others would count
        return int(client.info("memory")["used_memory"])
