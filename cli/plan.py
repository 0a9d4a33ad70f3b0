"""plan: estimate what a number of messages needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from delayq.model.capacity import Capacity, Load, capacity
from delayq.model.footprint import ID_BYTES, LAYOUTS, Shape
from delayq.model.placement import MAX_SHARDS
from delayq.model.show import show_duration, show_per_second, show_size

from .formats import parse_count, parse_size
from .options import DURATION, RATE, Parsed, command, json_option
from .output import note, print_json, print_table, say

COUNT = Parsed("count", parse_count)
SIZE = Parsed("size", parse_size)
TOO_MANY = "a queue can have {most:,} shards, not {servers:,}: use larger servers, or a lake"


@command(
    "delayq plan --messages 1e9 --payload 300 --spread 365d --horizon 2h",
    "Estimate the memory and servers you need.",
)
@click.option(
    "--messages", required=True, type=COUNT, metavar="COUNT", help="Waiting messages: 1000000, 1,000,000 or 1e6."
)
@click.option("--payload", required=True, type=SIZE, metavar="SIZE", help="Bytes per payload: 300, 2k.")
@click.option(
    "--spread", required=True, type=DURATION, metavar="TIME", help="The period over which they fall due: 365d."
)
@click.option(
    "--horizon",
    default="2h",
    type=DURATION,
    metavar="TIME",
    help="With a lake: messages move into Redis this long before they are due.",
)
@click.option(
    "--rate",
    type=RATE,
    metavar="RATE",
    help="The peak rate at which messages fall due: 5000/s. Default: evenly over the spread.",
)
@click.option(
    "--server-memory",
    default="16g",
    type=SIZE,
    metavar="SIZE",
    help="Memory of a server; at most three quarters of it are used.",
)
@click.option("--id-length", default=ID_BYTES, type=click.IntRange(1, 256), help="Bytes of a message's id.")
@click.option(
    "--unique-for",
    default="0",
    show_default=False,
    type=DURATION,
    metavar="TIME",
    help="How long sent ids stay reserved, if all messages are sent at the same time; the Spark format uses 1d. "
    "Default: not reserved.",
)
@click.option(
    "--redis",
    default="7.0",
    type=click.Choice(list(LAYOUTS)),
    help="The Redis version whose memory is computed.",
)
@json_option
def plan(payload: int, id_length: int, as_json: bool, **settings: Any) -> None:
    """Estimate the memory and servers that messages need, the size of a lake, and how long moving the messages takes.

    Compares two ways: all messages wait in Redis; or Redis holds the messages due in the next few hours, and a Parquet
    lake holds the rest. Memory is computed from Redis's data layout, within 5 % of actual use. Times are for small
    payloads on a machine with two cores, and show only the order of magnitude. No server is contacted. See
    docs/capacity.md.
    """
    load = Load(shape=Shape(payload, id=id_length), **settings)
    found = capacity(load)
    if as_json:
        print_json(msgspec.to_builtins(found))
        return
    say(f"{load.messages:,} messages of {payload:,} bytes, due over {show_duration(load.spread)}: {_rates(found)}")
    say("")
    print_table(["", "#all in Redis", "#with a lake"], _rows(load, found))
    if found.all_in_redis.servers > MAX_SHARDS:
        note(TOO_MANY.format(servers=found.all_in_redis.servers, most=MAX_SHARDS))


def _rates(found: Capacity) -> str:
    mean, peak = show_per_second(found.mean_per_second), show_per_second(found.peak_per_second)
    return f"{mean} per second" + ("" if peak == mean else f", {peak} at peak")


def _rows(load: Load, found: Capacity) -> Iterator[Sequence[str]]:
    lake, holdings = found.lake, (found.all_in_redis, found.lake.in_redis)
    yield ["messages in Redis", *(f"{each.messages:,}" for each in holdings)]
    yield ["reserved ids in Redis", *(f"{each.reserved:,}" for each in holdings)]
    yield ["Redis memory", *(show_size(each.redis_bytes) for each in holdings)]
    yield [f"servers of {show_size(load.server_memory)} (shards)", *(f"{each.servers:,}" for each in holdings)]
    yield ["lake size, text payloads", "-", show_size(lake.text_bytes)]
    yield ["lake size, random payloads", "-", show_size(lake.random_bytes)]
    yield ["time to send or defer all", *map(show_duration, (found.send_seconds, lake.defer_seconds))]
    yield ["time to hydrate the busiest hour", "-", show_duration(lake.hydrate_seconds)]
    yield ["time to consume the busiest hour", *2 * [show_duration(found.drain_seconds)]]
