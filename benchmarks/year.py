"""``python -m benchmarks.year``: Redis memory while a year's messages fall due, with a lake and without."""

from __future__ import annotations

import datetime as dt
import random
import tempfile

import click
import pyarrow as pa
import redis
from delayq.cli.output import print_fields

from benchmarks.server import find_binary
from delayq import Queue
from delayq.lake.hydrate import hydrate
from delayq.lake.layout import HOUR_MS, hour_of
from delayq.lake.queue_folder import SCHEMA, QueueFolder
from delayq.model.envelope import encode_envelope
from delayq.model.footprint import Shape
from delayq.model.message_ids import new_ids
from delayq.model.show import show_size
from tests.harness.footprints import used_by
from tests.harness.servers import RedisServer

HOURS = 365 * 24
HORIZON = dt.timedelta(hours=2)
HOUR = dt.timedelta(hours=1)
KEYS_A_TRIP = 1000


def fill(lake: str, shape: Shape, messages: int, first: dt.datetime) -> None:
    """Write messages to a lake, due evenly over a year, one file per hour."""
    folder, lot = QueueFolder(lake, shape.queue), random.Random(7)
    first_ms, envelope = round(first.timestamp() * 1000), encode_envelope(bytes(shape.payload), max_retries=3)
    for number in range(HOURS):
        start = first_ms + number * HOUR_MS
        count = (number + 1) * messages // HOURS - number * messages // HOURS
        dues = [start + lot.randrange(HOUR_MS) for _ in range(count)]
        columns = [sorted(new_ids(count)), dues, [first_ms] * count, [envelope] * count, [None] * count]
        folder.write(hour_of(start), "year", pa.table(columns, schema=SCHEMA))


def peak(server: RedisServer, lake: str, shape: Shape, first: dt.datetime, days: int) -> int:
    """Return the most bytes by which Redis grows while the first days of the year pass hour by hour."""
    server.flush()
    now = [first - HORIZON]
    most = 0
    with (
        server.client() as client,
        Queue(shape.queue, url=server.url, prefix=shape.prefix, clock=lambda: now[0].timestamp() * 1000) as queue,
    ):
        queue.stats()
        before = _used(client)
        for _ in range(days * 24):
            hydrate(queue, lake, HORIZON, now=now[0], keep=HOUR)
            most = max(most, _used(client) - before)
            now[0] += HOUR
            while messages := queue.receive(max_messages=500):
                queue.ack(messages)
            _forget(client, queue, now[0])
    return most


def _used(client: redis.Redis) -> int:
    return int(client.info("memory")["used_memory"])


def _forget(client: redis.Redis, queue: Queue, now: dt.datetime) -> None:
    """Delete expired reservations; Redis would do so itself, but does not follow this clock."""
    keys = list(client.scan_iter(match=queue._context.shards[0].keys.unique("*"), count=KEYS_A_TRIP))
    for start in range(0, len(keys), KEYS_A_TRIP):
        some = keys[start : start + KEYS_A_TRIP]
        ends = client.mget(some)
        over = [key for key, end in zip(some, ends, strict=True) if int(end or 0) <= now.timestamp() * 1000]
        if over:
            client.delete(*over)


@click.command()
@click.option(
    "--messages", default=1_000_000, show_default=True, type=click.IntRange(HOURS), help="Messages of the year."
)
@click.option("--payload", default=300, show_default=True, type=click.IntRange(0), help="Bytes per payload.")
@click.option("--days", default=7, show_default=True, type=click.IntRange(1, 365), help="Days to simulate.")
def main(messages: int, payload: int, days: int) -> None:
    """Measure what Redis needs for a year's messages: all in Redis, and with a lake and a horizon of two hours."""
    shape = Shape(payload)
    first = dt.datetime.now(dt.UTC).replace(minute=0, second=0, microsecond=0) + dt.timedelta(days=1)
    server = RedisServer(find_binary())
    try:
        everything = used_by(server, messages, shape)
        with tempfile.TemporaryDirectory() as lake:
            fill(lake, shape, messages, first)
            most = peak(server, lake, shape, first, days)
    finally:
        server.close()
    print_fields(
        [
            ("all in Redis", show_size(everything)),
            (f"from a lake, {days} days, maximum", show_size(most)),
            ("that is", f"{most / everything:.2%}"),
        ]
    )


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.year")
