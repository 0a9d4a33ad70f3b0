"""What a number of messages needs: memory, servers, a lake, and time.

``footprint`` computes the bytes. The rates come from ``docs/benchmarks.md`` and ``docs/capacity.md``: they hold for
small payloads on a machine with two cores, and give the order of magnitude.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec

from delayq.errors import InvalidInput
from delayq.model.envelope import MAX_PAYLOAD_BYTES
from delayq.model.footprint import LAYOUTS, Shape, in_lake, reserved, waiting
from delayq.model.show import show_duration
from delayq.model.units import MAX_TIME_MS
from delayq.model.validation import MAX_ID_BYTES

GIB = 1024**3
HOUR = 3600.0
MOST_MESSAGES = 10**12
LEAST_MEMORY = GIB // 16

FILLED = 0.75
"""The share of a server's memory to plan with.

The rest is for a hash table that grows while its old half is kept, memory that the allocator cannot give back, client
buffers, and pages written to during a snapshot.
"""

RESERVED: Final = 86_400.0
"""Seconds after its hour for which the id of a message from a lake stays reserved, so that it cannot arrive twice."""

MARK_BYTES: Final = 16

BUSY = 0.5
"""The share of a server's one core to plan with: above it, bursts would wait."""

SERVER_SECONDS: Final = 6.9e-6
"""Time of a server's core for a message that is sent in bulk and drained: docs/benchmarks.md, delayq alone."""

SENT: Final = 156_000
"""Messages a second that one process sends: docs/benchmarks.md, send in bulk."""

CONSUMED: Final = 136_000
"""Messages a second that one process takes and acks with an empty handler: docs/benchmarks.md, drain."""

DEFERRED: Final = 150_000
"""Messages a second that Spark writes to a lake on two cores: docs/capacity.md."""

HYDRATED: Final = 65_000
"""Messages a second from the lake into Redis, on two cores: docs/capacity.md."""


class Load(NamedTuple):
    """The messages to plan for.

    Attributes:
        messages: the most that wait at once.
        shape: what they have in common.
        spread: seconds over which they fall due, evenly except for `rate`.
        horizon: how many seconds before its due time a message moves from the lake into Redis.
        rate: messages a second that fall due at the peak; None for the mean.
        unique_for: seconds for which ids stay reserved when all messages are sent into Redis at once; 0 for none.
        server_memory: bytes that a server may use.
        redis: the version, a key of LAYOUTS.
    """

    messages: int
    shape: Shape
    spread: float
    horizon: float
    rate: float | None = None
    unique_for: float = 0.0
    server_memory: int = 16 * GIB
    redis: str = "7.0"

    @property
    def mean(self) -> float:
        """Messages a second that fall due if they are spread evenly."""
        return self.messages / self.spread

    @property
    def peak(self) -> float:
        """Messages a second that fall due at the peak."""
        return self.rate or self.mean

    def due_within(self, seconds: float) -> int:
        """Return the most messages that fall due within `seconds`."""
        return min(self.messages, math.ceil(self.peak * seconds))


class Holding(msgspec.Struct, frozen=True):
    """What a load needs of Redis, held in one of two ways.

    Attributes:
        messages: the most that wait in Redis.
        reserved: the most other ids that are reserved.
        redis_bytes: memory of all servers together.
        servers: how many servers with the load's memory each; more than one form a Redis Cluster.
    """

    messages: int
    reserved: int
    redis_bytes: int
    servers: int


class Lake(msgspec.Struct, frozen=True):
    """What a load needs if Redis holds only the messages due in the next few hours.

    Attributes:
        in_redis: what those hours need.
        text_bytes: size of the lake if payloads are text.
        random_bytes: size of the lake if payloads do not compress.
        defer_seconds: time to write all messages to the lake.
        hydrate_seconds: time to move the fullest hour into Redis.
    """

    in_redis: Holding
    text_bytes: int
    random_bytes: int
    defer_seconds: float
    hydrate_seconds: float


class Capacity(msgspec.Struct, frozen=True):
    """What a load needs.

    Attributes:
        message_bytes: memory of Redis for one message, with all messages in Redis.
        mean_per_second, peak_per_second: messages that fall due.
        all_in_redis: what they need without a lake.
        send_seconds: time for one process to send all of them to Redis.
        lake: what they need with a lake.
        drain_seconds: time for one consumer process with an empty handler to take what falls due in the fullest hour.
    """

    message_bytes: float
    mean_per_second: float
    peak_per_second: float
    all_in_redis: Holding
    send_seconds: float
    lake: Lake
    drain_seconds: float


def capacity(load: Load) -> Capacity:
    """Return what a load needs.

    Raises:
        InvalidInput: names the value that is out of range or does not fit the others.
    """
    _check(load)
    hour = load.due_within(HOUR)
    everything = _holding(load, load.messages, load.messages if load.unique_for else 0, load.shape.id)
    ahead = load.horizon + HOUR  # a whole hour comes in when its first minute is within the horizon
    return Capacity(
        message_bytes=everything.redis_bytes / load.messages,
        mean_per_second=load.mean,
        peak_per_second=load.peak,
        all_in_redis=everything,
        send_seconds=load.messages / SENT,
        lake=Lake(
            in_redis=_holding(load, load.due_within(ahead), load.due_within(ahead + RESERVED), MARK_BYTES),
            text_bytes=in_lake(load.messages, load.shape, is_text=True),
            random_bytes=in_lake(load.messages, load.shape, is_text=False),
            defer_seconds=load.messages / DEFERRED,
            hydrate_seconds=hour / HYDRATED,
        ),
        drain_seconds=hour / CONSUMED,
    )


def _holding(load: Load, messages: int, ids: int, id_bytes: int) -> Holding:
    layout, usable = LAYOUTS[load.redis], load.server_memory * FILLED

    def bytes_on_each_of(servers: int) -> int:
        held = waiting(-(-messages // servers), load.shape, layout)
        return held + reserved(-(-ids // servers), load.shape._replace(id=id_bytes), layout)

    by_memory = range(1, 2 + math.ceil(1.2 * bytes_on_each_of(1) / usable))
    enough = 1 + bisect_left(by_memory, True, key=lambda servers: bytes_on_each_of(servers) <= usable)
    servers = max(enough, math.ceil(load.peak * SERVER_SECONDS / BUSY))
    return Holding(messages, ids, bytes_on_each_of(servers) * servers, servers)


def _check(load: Load) -> None:
    if not 1 <= load.messages <= MOST_MESSAGES:
        raise InvalidInput(f"{load.messages} messages is not between 1 and {MOST_MESSAGES:.0e}")
    if not 0 <= load.shape.payload <= MAX_PAYLOAD_BYTES:
        raise InvalidInput(f"a payload of {load.shape.payload:,} bytes is not between 0 and {MAX_PAYLOAD_BYTES:,}")
    if not 1 <= load.shape.id <= MAX_ID_BYTES:
        raise InvalidInput(f"an id of {load.shape.id} bytes is not between 1 and {MAX_ID_BYTES}")
    for what, seconds in (("spread", load.spread), ("horizon", load.horizon)):
        if not 1 <= seconds <= MAX_TIME_MS / 1000:
            raise InvalidInput(f"a {what} of {seconds:g} s is not between 1 s and {MAX_TIME_MS // 1000} s")
    if load.server_memory < LEAST_MEMORY:
        raise InvalidInput(f"{load.server_memory:,} bytes is too little memory for a server: give 64m or more")
    if load.rate is not None and load.rate < load.mean:
        raise InvalidInput(
            f"a peak of {load.rate:g}/s is below the mean of {load.mean:.4g}/s, at which "
            f"{load.messages:,} messages fall due within {show_duration(load.spread)}: give a higher rate"
        )
