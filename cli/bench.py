"""bench: how fast delayq is on this machine and this server."""

from __future__ import annotations

import logging
import secrets
import signal
import statistics
import threading
import time
from array import array
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

import click
import redis
from redis.cluster import RedisCluster

import delayq
from delayq import signals
from delayq.consumer import Consumer
from delayq.model.delivery import Outgoing
from delayq.model.message import Message
from delayq.model.placement import STATES
from delayq.model.validation import MAX_RECEIVED
from delayq.operations import registry
from delayq.queue import Queue

from .connection import ServerOptions
from .options import command, json_option, server_options
from .output import note, print_fields, print_json, print_table
from .progress import progress

HOUR = 3600.0  # seconds: not due during the measurement
LEAD_SECONDS = 1.0  # time to send the messages whose lateness is measured
FREED_SECONDS = 10.0  # for a server thread to free unlinked memory
LATE_A_SECOND = 100  # messages: 2,000 in 20 seconds
PAGE = 1000  # ids per call when deleting keys
EMBEDDED = (
    "the embedded store writes each change to disk before it answers (appendfsync always), which limits the rates"
)
SHORT = {"messages": 20_000, "runs": 1, "seconds": 2.0}

Measure: TypeAlias = Callable[[Queue, bytes, int], None]


@command("delayq bench --short", "Measure how fast delayq is on this server.")
@click.option("--messages", default=50_000, type=click.IntRange(100, 10_000_000), help="Messages per run.")
@click.option("--runs", default=5, type=click.IntRange(1, 100), help="Runs per rate; the medians are printed.")
@click.option(
    "--seconds",
    default=20.0,
    type=click.FloatRange(0.1, 3600),
    help="How long to measure lateness.",
)
@click.option("--size", default=100, type=click.IntRange(1, 1_000_000), help="Bytes per payload.")
@click.option("--short", is_flag=True, help="Quick: 20,000 messages, 1 run, 2 seconds.")
@server_options
@json_option
def bench(
    server: ServerOptions, messages: int, runs: int, seconds: float, size: int, short: bool, as_json: bool
) -> None:
    """Measure how fast delayq is on this server, how late its messages are, and what they cost.

    The consumer runs in this process. Rates depend on the machine and the network: compare only figures of one machine.

    Uses its own queue and deletes its keys at the end. It puts a heavy load on the server: do not use a server that
    others depend on.
    """
    settings: dict[str, Any] = {"messages": messages, "runs": runs, "seconds": seconds} | (SHORT if short else {})
    messages, runs, seconds = settings.values()
    embedded = not server.url or server.url.lower().startswith("embedded:")
    if embedded:
        note(EMBEDDED)
    logging.getLogger("delayq").setLevel(logging.WARNING)  # not each start of a consumer
    payload, rates = b"x" * size, dict[str, list[float]]()
    with (
        signals.interrupted(signal.SIGTERM),
        progress("measuring", len(RATES) * runs + 1) as bar,
        _queue(server) as queue,
    ):
        client = home(queue)
        redis_version = str(client.info("server")["redis_version"])
        for name, (_, share, is_due, measure) in RATES.items():
            count, rates[name] = max(1, round(messages * share)), []
            for _ in range(runs):
                if is_due:
                    _send_many(queue, payload, count, delay=0)
                rates[name].append(count / _seconds(partial(measure, queue, payload, count)))
                clear(queue)
                bar.advance(1)
        late = _lateness(queue, payload, max(10, round(LATE_A_SECOND * seconds)), seconds)
        clear(queue)
        figures = {"lateness": late} | _cost(queue, payload, messages)
        bar.advance(1)
    summaries = {name: _summary(samples) for name, samples in rates.items()}
    if as_json:
        about = {"delayq": delayq.__version__, "redis": redis_version, "embedded": embedded}
        rows = {name: {"per_second": each} for name, each in summaries.items()}
        print_json(about | {"settings": settings | {"size": size}, "rates": rows} | figures)
        return
    columns = ("median", "min", "max")
    texts = [[RATES[name][0], *(f"{each[key]:,.0f}" for key in columns)] for name, each in summaries.items()]
    print_table(["messages per second", *(f"#{each}" for each in columns)], texts)
    within = ", ".join(f"{text} within {late[key]:.2f} ms" for text, key in LATENESS.items())
    print_fields(
        [
            ("lateness", f"{within}; {late['early'] or 'none'} early ({late['messages']:,} over {seconds:g} s)"),
            ("memory", f"{figures['memory_bytes']:.0f} bytes per waiting message of {size} bytes"),
            ("server CPU", f"{figures['redis_cpu_us']:.1f} µs per message, sent in bulk and consumed"),
        ]
    )


def _send_one(queue: Queue, payload: bytes, count: int) -> None:
    for _ in range(count):
        queue.send(payload, delay=HOUR)


def _send_many(queue: Queue, payload: bytes, count: int, delay: float = HOUR) -> None:
    queue.send_many([Outgoing(payload, delay=delay) for _ in range(count)])


def _send_threads(threads: int) -> Measure:
    def send(queue: Queue, payload: bytes, count: int) -> None:
        parts = [count // threads + (number < count % threads) for number in range(threads)]
        with ThreadPoolExecutor(threads) as workers:
            list(workers.map(partial(_send_one, queue, payload), parts))

    return send


def _consume(queue: Queue, _: bytes, count: int) -> None:
    Consumer(queue, lambda _: None).run(max_messages=count)


def _pull(queue: Queue, _: bytes, count: int) -> None:
    while count > 0 and (messages := queue.receive(MAX_RECEIVED)):
        count -= sum(queue.ack(messages))
    if count:
        raise click.ClickException(f"{count} messages are missing: the figures are void")


RATES: dict[str, tuple[str, float, bool, Measure]] = {
    "send_one": ("send, one by one", 0.2, False, _send_one),
    "send_bulk": ("send_many", 1, False, _send_many),
    "threads_8": ("send, from 8 threads", 0.5, False, _send_threads(8)),
    "threads_64": ("send, from 64 threads", 0.5, False, _send_threads(64)),
    "drain": ("consume", 1, True, _consume),
    "pull": ("receive and ack", 1, True, _pull),
}
"""Each rate with its label, its share of the messages, whether these are to be due, and what is timed."""

LATENESS = {"50%": "p50_ms", "99%": "p99_ms", "all": "max_ms"}


def _lateness(queue: Queue, payload: bytes, count: int, seconds: float) -> dict[str, Any]:
    """Let messages fall due one after another, with an idle consumer waiting.

    Their due times are the server's, so the difference between the two clocks is taken into account.
    """
    late, early = array("d"), 0

    def handle(message: Message) -> None:
        nonlocal early
        late.append(time.time() * 1000 - message.due_ms)
        early += message.handed_ms < message.due_ms

    consumer = Consumer(queue, handle)
    waiting = threading.Thread(target=partial(consumer.run, max_messages=count))
    offset = clock_offset(home(queue))
    waiting.start()
    try:
        step = seconds / count
        queue.send_many([Outgoing(payload, delay=LEAD_SECONDS + number * step) for number in range(count)])
        waiting.join()
    finally:
        consumer.stop()
        waiting.join()
    parts = statistics.quantiles(late, n=100, method="inclusive")
    worst = {"p50_ms": parts[49] + offset, "p99_ms": parts[98] + offset, "max_ms": max(late) + offset}
    return {"messages": count, "early": early} | worst


def clock_offset(client: redis.Redis) -> float:
    """Return by how many ms the server's clock is ahead of this machine's, accurate to half a round trip."""
    best, offset = float("inf"), 0.0
    for _ in range(20):
        before = time.time()
        seconds, micros = client.time()
        after = time.time()
        if after - before < best:
            best, offset = after - before, seconds + micros / 1e6 - (before + after) / 2
    return offset * 1000


def _cost(queue: Queue, payload: bytes, count: int) -> dict[str, float]:
    """Return the memory of a waiting message, and the server's CPU time for one that is sent and consumed."""
    client = home(queue)
    memory, before = _memory(client), client.info("cpu")
    _send_many(queue, payload, count, delay=0.001)
    grown = _memory(client) - memory
    _consume(queue, payload, count)
    after = client.info("cpu")
    spent = sum(after[key] - before[key] for key in ("used_cpu_user", "used_cpu_sys"))
    return {"memory_bytes": grown / count, "redis_cpu_us": spent / count * 1e6}


def _memory(client: redis.Redis) -> int:
    """Return the server's memory in bytes without its buffers, once the memory of deleted keys is free."""
    freed(client)
    info: dict[str, Any] = client.info("memory")
    return int(info["used_memory"] - info["mem_clients_normal"])


def freed(client: redis.Redis) -> None:
    """Wait until the server has freed unlinked memory."""
    deadline = time.monotonic() + FREED_SECONDS
    while client.info("memory")["lazyfree_pending_objects"] and time.monotonic() < deadline:
        time.sleep(0.01)


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _summary(samples: Sequence[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(samples),
        "min": min(samples),
        "max": max(samples),
        "samples": [*samples],
    }


@contextmanager
def _queue(server: ServerOptions) -> Generator[Queue]:
    # With its own client, like a user's queue: one that shares its client is slower.
    queue = Queue(f"delayq-bench-{secrets.token_hex(4)}", url=server.url, prefix=server.prefix)
    try:
        yield queue
    finally:
        clear(queue)
        queue.close()


def home(queue: Queue) -> redis.Redis:
    """Return a client of the server that holds a queue or, if it has several shards, the first shard."""
    client: Any = queue._executor.client  # noqa: SLF001  # the queue's own connections
    if isinstance(client, RedisCluster):
        client = client.get_redis_connection(client.get_node_from_key(_keys(queue).meta))
    return client  # type: ignore[no-any-return]


def _keys(queue: Queue) -> Any:
    """Return the keys of a queue's first shard."""
    return queue._context.shards[0].keys  # noqa: SLF001  # as above


def clear(queue: Queue) -> None:
    """Delete the keys of an unused queue with one shard."""
    client: Any = home(queue)
    keys = _keys(queue)
    for state in STATES:
        while ids := client.zrange(keys.state(state), 0, PAGE - 1):
            names = [keys.message(each.decode()) for each in ids]
            client.pipeline().unlink(*names).zrem(keys.state(state), *ids).execute()
    claims = client.scan_iter(f"{keys.claim_prefix}*", count=PAGE)
    client.unlink(*claims, *(key for name, key in vars(keys).items() if not name.endswith("_prefix")))
    queue.execute(lambda context: registry.remove_gone(context.prefix, "queue", [context.name]))
