"""What it takes to hold so many messages: memory, servers, a lake, and time.

Bytes are computed in ``footprint``. Rates are those of ``docs/benchmarks.md`` and ``docs/capacity.md``: of small
payloads, on a machine with two cores, good for an estimate of the order.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import Final, NamedTuple

import msgspec

from delayq.errors import InvalidInput
from delayq.model.envelope import MAX_PAYLOAD_BYTES
from delayq.model.footprint import LAYOUTS, Shape, in_lake, reserved, waiting
from delayq.model.units import MAX_TIME_MS, show_duration
from delayq.model.validation import MAX_ID_BYTES

GIB = 1024**3
HOUR = 3600.0
MOST_MESSAGES = 10**12
LEAST_MEMORY = GIB // 16

FILLED = 0.75
"""The share of a server's memory that is planned for.

The rest is for a hash table that grows, whose old half is kept meanwhile, for what the allocator cannot give away
again, for the buffers of clients, and for the pages that are written to while a snapshot is taken.
"""

RESERVED: Final = 86_400.0
"""Seconds behind its hour for which a message that came from a lake cannot come again: as long its mark is reserved."""

MARK_BYTES: Final = 16

BUSY = 0.5
"""The share of a server's one core that is planned for: what comes at once would wait, else."""

SERVER_SECONDS: Final = 6.9e-6
"""Of a server's core for a message that is sent in bulk and drained: docs/benchmarks.md, delayq alone."""

SENT: Final = 156_000
"""Messages a second that a process sends: docs/benchmarks.md, send in bulk."""

CONSUMED: Final = 136_000
"""Messages a second that a process takes and acks, its handler doing nothing: docs/benchmarks.md, drain."""

DEFERRED: Final = 150_000
"""Messages a second that Spark writes to a lake on two cores: docs/capacity.md."""

HYDRATED: Final = 65_000
"""Messages a second from the lake into Redis, on two cores: docs/capacity.md."""


class Load(NamedTuple):
    """What is to be held.

    Attributes:
        messages: that wait, at the most.
        shape: what they have in common.
        spread: seconds over which they fall due, evenly but for `rate`.
        horizon: seconds ahead of its due time at which a message of the lake comes into Redis.
        rate: messages a second that fall due when most do; None for the mean.
        unique_for: seconds for which ids stay reserved when all are sent into Redis at once; 0 for not at all.
        server_memory: bytes that a server may use.
        redis: the version, of LAYOUTS.
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
        """Messages a second that fall due, were they spread evenly."""
        return self.messages / self.spread

    @property
    def peak(self) -> float:
        """Messages a second that fall due when most do."""
        return self.rate or self.mean

    def due_within(self, seconds: float) -> int:
        """Return how many messages fall due, at the most, in so many seconds."""
        return min(self.messages, math.ceil(self.peak * seconds))


class Holding(msgspec.Struct, frozen=True):
    """What a load needs of Redis, held in one of two ways.

    Attributes:
        messages: that wait in Redis, at the most.
        reserved: ids that are reserved beside, at the most.
        redis_bytes: of all servers.
        servers: how many, of the load's memory each: more than one are a Redis Cluster.
    """

    messages: int
    reserved: int
    redis_bytes: int
    servers: int


class Lake(msgspec.Struct, frozen=True):
    """What a load needs when only the next hours are in Redis.

    Attributes:
        in_redis: of them.
        text_bytes: of the lake, with payloads of words.
        random_bytes: of the lake, with payloads that no compression makes shorter.
        defer_seconds: to write all to the lake.
        hydrate_seconds: to bring the fullest hour into Redis.
    """

    in_redis: Holding
    text_bytes: int
    random_bytes: int
    defer_seconds: float
    hydrate_seconds: float


class Capacity(msgspec.Struct, frozen=True):
    """What a load needs.

    Attributes:
        message_bytes: of Redis for a message, were all there.
        mean_per_second, peak_per_second: messages that fall due.
        all_in_redis: what holds them without a lake.
        send_seconds: for one process to send all of them to Redis.
        lake: what holds them with one.
        drain_seconds: for one consumer process to take what falls due in the fullest hour, its handler doing nothing.
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
        InvalidInput: naming what is out of its range, or does not fit the rest.
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
        raise InvalidInput(f"{load.messages} messages are not 1 to {MOST_MESSAGES:.0e}")
    if not 0 <= load.shape.payload <= MAX_PAYLOAD_BYTES:
        raise InvalidInput(f"a payload of {load.shape.payload} bytes is not 0 to {MAX_PAYLOAD_BYTES}")
    if not 1 <= load.shape.id <= MAX_ID_BYTES:
        raise InvalidInput(f"an id of {load.shape.id} bytes is not 1 to {MAX_ID_BYTES}")
    for what, seconds in (("spread", load.spread), ("horizon", load.horizon)):
        if not 1 <= seconds <= MAX_TIME_MS / 1000:
            raise InvalidInput(f"a {what} of {seconds:g} s is not 1 to {MAX_TIME_MS // 1000}")
    if load.server_memory < LEAST_MEMORY:
        raise InvalidInput(f"a server with {load.server_memory} bytes is none: give 64m or more")
    if load.rate is not None and load.rate < load.mean:
        raise InvalidInput(
            f"at {load.rate:g} a second at the most, {load.messages:,} messages do not fall due within "
            f"{show_duration(load.spread)}: the mean is {load.mean:.4g} a second"
        )
