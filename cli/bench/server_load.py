"""The server of a queue: what it reports about its work (CPU time, commands, memory), and how the keys are removed."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import redis
from redis.cluster import RedisCluster

from delayq.model.placement import STATES
from delayq.operations import registry
from delayq.operations.queue_context import QueueContext
from delayq.queue import Queue

PAGE = 1000  # ids per call when deleting keys
FREED_SECONDS = 10.0  # for a server thread to free unlinked memory
CLOCK_LOOKS = 20


class ServerReading(NamedTuple):
    """The counts of a server at one instant, or the difference between two readings.

    They include all clients of the server.

    Attributes:
        cpu_seconds: CPU time of its process.
        commands: commands, including those in scripts.
        trips: replies written, which are the round trips if each reply is written at once; long replies count more
            than once.
        memory_bytes: memory in use, without buffers of clients.
    """

    cpu_seconds: float
    commands: int
    trips: int
    memory_bytes: int

    def since(self, earlier: ServerReading) -> ServerReading:
        """Return the difference from an earlier reading, whose own command and reply are not counted."""
        return ServerReading(
            self.cpu_seconds - earlier.cpu_seconds,
            self.commands - earlier.commands - 1,
            self.trips - earlier.trips - 1,
            self.memory_bytes - earlier.memory_bytes,
        )


def read(client: redis.Redis) -> ServerReading:
    """Read the counts of a server."""
    told: dict[str, Any] = client.info()
    return ServerReading(
        told["used_cpu_user"] + told["used_cpu_sys"],
        told["total_commands_processed"],
        told["total_writes_processed"],
        told["used_memory"] - told["mem_clients_normal"],
    )


def freed(client: redis.Redis) -> None:
    """Wait until the server has freed unlinked memory."""
    deadline = time.monotonic() + FREED_SECONDS
    while client.info("memory")["lazyfree_pending_objects"] and time.monotonic() < deadline:
        time.sleep(0.01)


def clock_offset(client: redis.Redis) -> float:
    """Return by how many ms the server's clock is ahead of this machine's, accurate to half a round trip."""
    best, offset = float("inf"), 0.0
    for _ in range(CLOCK_LOOKS):
        before = time.time()
        seconds, micros = client.time()
        after = time.time()
        if after - before < best:
            best, offset = after - before, seconds + micros / 1e6 - (before + after) / 2
    return offset * 1000


def home(queue: Queue) -> redis.Redis:
    """Return a client of the server that holds a queue or, if it has several shards, the first shard."""
    client: Any = queue._executor.client  # noqa: SLF001  # the baseline uses the same client
    if isinstance(client, RedisCluster):
        client = client.get_redis_connection(client.get_node_from_key(queue.execute(QueueContext.opened)[0].keys.meta))
    return client  # type: ignore[no-any-return]


def clear(queue: Queue) -> None:
    """Delete the keys of a queue with one shard that is no longer in use."""
    client: Any = home(queue)
    keys = queue.execute(QueueContext.opened)[0].keys
    for state in STATES:
        while ids := client.zrange(keys.state(state), 0, PAGE - 1):
            names = [keys.message(each.decode()) for each in ids]
            client.pipeline().unlink(*names).zrem(keys.state(state), *ids).execute()
    claims = client.scan_iter(f"{keys.claim_prefix}*", count=PAGE)
    client.unlink(*claims, *(key for name, key in vars(keys).items() if not name.endswith("_prefix")))
    queue.execute(lambda context: registry.remove(context.prefix, "queue", [context.name]))
