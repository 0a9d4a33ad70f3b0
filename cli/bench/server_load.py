"""What a server tells of its own work: processor time, commands, round trips, memory."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import redis
from redis.cluster import RedisCluster

from delayq.operations.queue_context import QueueContext
from delayq.queue import Queue

FREED_SECONDS = 10.0  # for a thread of the server to free what was unlinked
CLOCK_LOOKS = 20


class ServerReading(NamedTuple):
    """The counts of a server at one instant; of two readings, what came between.

    All clients of the server are in them.

    Attributes:
        cpu_seconds: processor time of its process.
        commands: those that scripts have run included.
        trips: replies written: round trips, where each is written at once. Long replies count more than once.
        memory_bytes: in use, but for what is kept for clients.
    """

    cpu_seconds: float
    commands: int
    trips: int
    memory_bytes: int

    def since(self, earlier: ServerReading) -> ServerReading:
        """Return what came between; the earlier reading's own command and reply are not counted."""
        return ServerReading(
            self.cpu_seconds - earlier.cpu_seconds,
            self.commands - earlier.commands - 1,
            self.trips - earlier.trips - 1,
            self.memory_bytes - earlier.memory_bytes,
        )


def read(client: redis.Redis) -> ServerReading:
    """Read the gauges of a server."""
    told: dict[str, Any] = client.info()
    return ServerReading(
        told["used_cpu_user"] + told["used_cpu_sys"],
        told["total_commands_processed"],
        told["total_writes_processed"],
        told["used_memory"] - told["mem_clients_normal"],
    )


def freed(client: redis.Redis) -> None:
    """Wait until the server has freed what was unlinked."""
    deadline = time.monotonic() + FREED_SECONDS
    while client.info("memory")["lazyfree_pending_objects"] and time.monotonic() < deadline:
        time.sleep(0.01)


def clock_offset(client: redis.Redis) -> float:
    """Return by how many ms the server's clock is ahead of this machine's, right to half a round trip."""
    best, offset = float("inf"), 0.0
    for _ in range(CLOCK_LOOKS):
        before = time.time()
        seconds, micros = client.time()
        after = time.time()
        if after - before < best:
            best, offset = after - before, seconds + micros / 1e6 - (before + after) / 2
    return offset * 1000


def home(queue: Queue) -> redis.Redis:
    """Return a client of the server that holds a queue; of several shards, the first."""
    client: Any = queue._executor.client  # noqa: SLF001  # what is compared with delayq runs beside it
    if isinstance(client, RedisCluster):
        client = client.get_redis_connection(client.get_node_from_key(queue.execute(QueueContext.opened)[0].keys.meta))
    return client  # type: ignore[no-any-return]
