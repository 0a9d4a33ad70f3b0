"""Messages of 100 B and of 1 MB take turns in a queue, and the server refuses some that follow from them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from delayq.operations.byte_budget import DOWN_BYTES
from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.scenarios.kill_consumers import strike
from tests.harness.chaos.world import Broken, World
from tests.harness.servers import RedisServer

LEASE = 5.0
SIZES = (100, 1_000_000)
BULK_BYTES = 1_500_000  # what the server accepts: more than the largest message
REFUSED_BYTES = 2_000_000
THEN_EVERY = 7
RATE = 60.0
SLACK_BYTES = 64 * 1024  # of a reply beside the messages


def run(world: World) -> Verdict:
    """Refused outcomes hurt only their messages, and no reply is larger than a round trip may be."""
    config = {"maxmemory-policy": "noeviction", "proto-max-bulk-len": str(BULK_BYTES)}
    server = world.server(config=config)
    lease, options = world.lease(LEASE), {"max_payload": 2 * REFUSED_BYTES}
    queue = world.queue(server.url, lease=lease)
    count, most = world.pick((200, 1), (2_400, 8))
    task: dict[str, Any] = {"name": "m", "count": count, "batch": 10, "rate": RATE, "sizes": SIZES, "again": True}
    producer = world.producer(server.url, "work", **task, options=options)
    working: dict[str, Any] = {
        "lease": lease,
        "then_every": THEN_EVERY,
        "refused_bytes": REFUSED_BYTES,
        "options": options,
    }
    consumers = [world.consumer(server.url, "work", **working) for _ in range(2)]
    rounds = 0
    with largest_reply(server) as largest, server.client() as client:
        while producer.poll() is None:
            world.check_time(queue)
            time.sleep(world.dice.uniform(0.5, world.pick(1, 5)))
            with world.trouble("maxmemory is reached"):
                client.config_set("maxmemory", 1)
                time.sleep(world.dice.uniform(0.5, world.pick(1, 5)))
                client.config_set("maxmemory", 0)
            if rounds < most:
                strike(world, consumers, lambda: producer.poll() is not None, 10)
                consumers.append(world.consumer(server.url, "work", **working))
            rounds += 1
        world.finish(producer)
        world.drain(queue, 120)
    for consumer in consumers:
        world.stop(consumer)
    verdict = world.verdict(queue)
    world.figures |= {"full": str(rounds), "largest reply": f"{max(largest) / 2**20:.1f} MiB"}
    judge_followers(world, count, verdict)
    if max(largest) > DOWN_BYTES + max(SIZES) + SLACK_BYTES:
        raise Broken(f"the server held {max(largest):,} bytes for one client")
    return verdict


def judge_followers(world: World, count: int, verdict: Verdict) -> None:
    """Check that everything was handled, though each message's first outcome was refused if it sends another."""
    wanted = {f"m-{n}+" for n in range(THEN_EVERY, count, THEN_EVERY)}
    ended = {event.id for event in history.read(world.folder) if event.kind == "finished"}
    world.figures["refused outcomes"] = str(len(wanted))
    if lost := sorted(wanted - ended):
        raise Broken(f"messages sent with an ack were never handled: {lost[:5]}; {verdict}")
    if verdict.buried:
        raise Broken(f"{verdict.buried} messages died, though each could be handled; {verdict}")


@contextmanager
def largest_reply(server: RedisServer) -> Iterator[list[int]]:
    """Note, all the time, how much memory the replies to each client take."""
    sizes, ended = [0], threading.Event()

    def look() -> None:
        with server.client() as client:
            while not ended.wait(0.002):
                sizes[0] = max(sizes[0], *(int(each["omem"]) for each in client.client_list()))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()
