"""Producers and consumers that run while faults hit their server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis

from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.outages import INF, worst_resume
from tests.harness.chaos.world import Broken, World
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

NAME = "work"
LEASE = 2.0
CONSUMERS = 2
RATE = 125  # messages sent per second; as many earlier ones fall due
WORK = 0.02  # seconds per message: more than one consumer can handle
START_SECONDS = 1.0  # about how long the processes take to start
RESUME_SECONDS = 5.0
PATIENCE_SECONDS = 120.0
DRAIN_SECONDS = 120.0
MOST_MORE = 20


class Traffic:
    """A stock of messages that fall due little by little, a producer that sends more, and consumers.

    Args:
        seconds: how long messages are sent and fall due.
        producing: changes of the producer's task, as in programs/produce.py.

    Attributes:
        stock: the number of messages in the stock.
        count: the total number of messages.
    """

    def __init__(self, world: World, server: RedisServer, seconds: float, **producing: Any) -> None:
        self.world = world
        self.server = server
        self.lease = world.lease(LEASE)
        self.queue = world.queue(server.url, NAME, lease=self.lease)
        self.stock = many = round(RATE * seconds)
        self.count = 2 * many
        self._more = 0
        delays = (0.0, START_SECONDS + seconds)
        world.finish(world.producer(server.url, NAME, name="stock", count=many, batch=250, delays=delays))
        self.consumers = [
            world.consumer(server.url, NAME, lease=self.lease, work=WORK, fail_every=50) for _ in range(CONSUMERS)
        ]
        task = {"name": "live", "count": many, "batch": 5, "rate": RATE, "delays": (0.0, 0.5), "again": True}
        self._task = task | producing
        self._producer = world.producer(server.url, NAME, **self._task)
        if not eventually(self._is_going, START_SECONDS + seconds):
            self._send_until(self._is_going, "a consumer has not begun")

    @property
    def is_on(self) -> bool:
        """Whether messages are still being sent."""
        return self._producer.poll() is None

    def lasts(self, is_enough: bool) -> bool:
        """Whether messages are still being sent; if not, send as many again until the scenario's fault has occurred.

        This process may have paused for longer than the messages take, but not MOST_MORE times in a row.
        """
        if self.is_on:
            return True
        if is_enough or self._more == MOST_MORE:
            return False
        self.world.finish(self._producer)
        self._more += 1
        self._producer = self.world.producer(self.server.url, NAME, **self._task | {"name": f"live-{self._more}"})
        self.count += self.stock
        return True

    def drain(self) -> None:
        """Wait until everything is done; the consumers keep running, idle."""
        self.world.finish(self._producer)
        self._go_on()
        self.world.drain(self.queue, DRAIN_SECONDS)

    def end(self, all_sent: bool = True) -> Verdict:
        """Wait until everything is done, and judge it.

        Args:
            all_sent: whether every send was repeated until it was acknowledged.

        Raises:
            Broken: a consumer took too long to resume after a trouble (in the long form); or as in `World.verdict`.
        """
        world = self.world
        self.drain()
        worst = self._worst_resume()
        world.figures["worst resume"] = f"{worst:.2f} s"
        for consumer in self.consumers:
            world.stop(consumer)
        verdict = world.verdict(self.queue, lease=self.lease)
        if all_sent and verdict.sends != self.count:
            raise Broken(f"{verdict.sends} of {self.count} sends were acknowledged; {verdict}")
        if world.size == "long" and worst > RESUME_SECONDS:
            raise Broken(f"a consumer went on {worst:.2f} s after the server had come back; {verdict}")
        return verdict

    def _go_on(self) -> None:
        """Send more until each consumer has resumed after the last trouble."""
        self._send_until(lambda: self._worst_resume() < INF, "a consumer has not gone on")

    def _send_until(self, is_seen: Callable[[], bool], trouble: str) -> None:
        """Send more while waiting: a consumer that comes late must find something to do."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not eventually(is_seen, seconds=0.2):
            if time.monotonic() > deadline:
                raise Broken(f"{trouble} for {PATIENCE_SECONDS} s: {self.world.log()}")
            for _ in range(50):
                self.world.send(self.queue, 1, id=f"more-{self.count}")
                self.count += 1

    def _worst_resume(self) -> float:
        return worst_resume(history.read(self.world.folder), [consumer.pid for consumer in self.consumers])

    def _is_going(self) -> bool:
        journals = [self.world.folder / f"consumer-{consumer.pid}.jsonl" for consumer in self.consumers]
        return all(journal.exists() and journal.stat().st_size for journal in journals)


def errors(client: redis.Redis, code: str) -> int:
    """Return how many errors a server has returned since its start."""
    count: int = client.info("errorstats").get(f"errorstat_{code}", {}).get("count", 0)
    return count
