"""A driver that streams rows into queues, or its workers, are killed: each row is sent once and delivered once."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import Self

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delayq import Queue
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.drivers import Driver
from tests.harness.chaos.programs.stream import Task
from tests.harness.chaos.world import Broken, World

NAMES = ("named", "nameless")


def run(world: World) -> Verdict:
    """Kill the driver, with and without its Java, and workers in turn, while the messages are delivered and acked."""
    server = world.server(appendonly=False)
    files, rows, kills = world.pick((12, 500, 2), (80, 6_000, 9))
    source, checkpoints = world.folder / "source", world.folder / "checkpoints"
    source.mkdir()
    for number in range(files):
        numbers = range(number * rows, (number + 1) * rows)
        pq.write_table(pa.table({"number": list(numbers)}), source / f"{number:04d}.parquet")
    task = Task(url=server.url, source=str(source), checkpoints=str(checkpoints), named=NAMES[0], nameless=NAMES[1])
    queues = [world.queue(server.url, name) for name in NAMES]
    words = ("-m", "tests.harness.chaos.programs.stream", msgspec.json.encode(task).decode())
    with (
        Driver(world.folder, [checkpoints / name for name in NAMES], *words) as driver,
        Taker(queues[0]) as first,
        Taker(queues[1]) as second,
    ):
        for number in range(kills):
            driver.reach_a_moment(world.dice)
            (driver.kill, lambda: driver.kill_worker(world.dice), driver.kill_alone)[number % 3]()
        driver.finish()
        for queue in queues:
            world.drain(queue)
        again = sum(map(int, re.findall(r"existing=(\d+)", driver.log)))
    world.figures |= {"kills": str(kills), "rows met again": f"{again:,}"}
    for queue in queues:
        stats = queue.stats()
        if (stats.sent, stats.acked, stats.missing) != (files * rows, files * rows, 0):
            raise Broken(f"{files * rows} rows of queue {queue.name}: {stats}")
    return verdict(files * rows, [first.seen, second.seen])


def verdict(count: int, seen: list[Counter[str]]) -> Verdict:
    """Judge what was delivered of this many rows, by queue."""
    rows = {str(number) for number in range(count)}
    twice = [payload for each in seen for payload, times in each.items() if times > 1]
    deliveries = sum(each.total() for each in seen)
    lost = [payload for each in seen for payload in rows - each.keys()]
    unexpected = [payload for each in seen for payload in each.keys() - rows]
    duplicates = deliveries - sum(map(len, seen))
    return Verdict(len(seen) * count, deliveries, duplicates, 0, 0.0, lost, unexpected, unexplained=twice)


class Taker:
    """Receives and acks the messages of a queue until it should end and nothing is left.

    Attributes:
        seen: the payloads, and how often each was delivered.
    """

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.01):
            while messages := self._queue.receive(500):
                self.seen.update(message.payload for message in messages)
                self._queue.ack(messages)
