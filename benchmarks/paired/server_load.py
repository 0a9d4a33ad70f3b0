"""What a server reports about its work: CPU time, commands, memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import redis


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
    info: dict[str, Any] = client.info()
    return ServerReading(
        info["used_cpu_user"] + info["used_cpu_sys"],
        info["total_commands_processed"],
        info["total_writes_processed"],
        info["used_memory"] - info["mem_clients_normal"],
    )
