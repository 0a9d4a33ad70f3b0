"""A cluster one of whose masters is unavailable, and what that costs the shards of the others.

Run ``python -m tests.harness.dead_master --help`` to measure it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import signal
import statistics
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from delayq import Consumer, Message, Outgoing, Queue, aio
from delayq.model.placement import shard_of
from delayq.protocol.queue_keys import QueueKeys
from delayq.protocol.topic_keys import TopicKeys
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster
from tests.harness.waiting import eventually

NAME = "work"
OWN_SLOTS = {"cluster-require-full-coverage": "no"}
"""With this setting, the masters serve their slots without one another."""


class Scene:
    """A queue of many shards, one of whose masters gets into trouble.

    Args:
        first: whether it has the queue's first shard, and so its record.
        shards: of the queue.
        dead: the master, instead of one that `first` chooses.
    """

    def __init__(
        self, cluster: Cluster, first: bool = False, shards: int = 12, dead: RedisServer | None = None
    ) -> None:
        self.cluster = cluster
        self.shards = shards
        self.url = f"{cluster.url}?socket_timeout=5"
        owners = [cluster.owner(self.key(shard)) for shard in range(self.shards)]
        self.dead = dead or (owners[0] if first else next(each for each in owners if each is not owners[0]))
        self.dead_shards = {shard for shard, owner in enumerate(owners) if owner is self.dead}
        assert 0 < len(self.dead_shards) < self.shards
        self.handled: dict[str, float] = {}  # lateness in seconds, by id
        self.waits: dict[str, threading.Event] = {}  # for which handlers wait, by id
        self._number = 0

    @staticmethod
    def key(shard: int) -> str:
        """Return a key of a shard."""
        return QueueKeys("delayq", NAME, shard).meta

    def shard(self, id: str) -> int:
        """Return the shard of a message."""
        return shard_of(id, self.shards)

    def note(self, message: Message) -> None:
        if message.id in self.waits:
            self.waits[message.id].wait()
        self.handled.setdefault(message.id, time.time() - message.due_at.timestamp())

    def ids(self, count: int, dead: bool = False) -> list[str]:
        """Return new ids of messages on the healthy shards, or on those of the dead master."""
        found: list[str] = []
        while len(found) < count:
            self._number += 1
            if (self.shard(each := f"m{self._number}") in self.dead_shards) is dead:
                found.append(each)
        return found

    def lateness(self, queue: Queue, count: int = 100) -> float:
        """Return the median lateness of messages on healthy shards that are sent one after the other."""
        return statistics.median(self.latenesses(queue, count))

    def latenesses(self, queue: Queue, count: int) -> list[float]:
        ids = self.ids(count)
        for each in ids:
            queue.send("x", id=each, delay=0.03)
            time.sleep(0.02)  # so that the consumer goes to sleep between them
        assert eventually(lambda: self.handled.keys() >= set(ids))
        return [self.handled[each] for each in ids]

    def seconds(self, queue: Queue, count: int = 600) -> float:
        """Return how long messages on healthy shards take, from the first send to the last handler."""
        began, ids = time.monotonic(), self.ids(count)
        queue.send_many([Outgoing("x", id=each) for each in ids])
        assert eventually(lambda: self.handled.keys() >= set(ids))
        return time.monotonic() - began

    @contextmanager
    def away(self, how: str) -> Iterator[None]:
        """Let the master be killed, frozen or without its slots; it is back at the end."""
        if how == "killed":
            self.dead.kill()
        elif how == "frozen":
            os.kill(self.dead.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            if how == "killed":
                self.dead.start()
                self.cluster.wait()
            else:
                os.kill(self.dead.pid, signal.SIGCONT)


class TopicScene(Scene):
    """The same with a topic; ids are keys of records."""

    @staticmethod
    def key(shard: int) -> str:
        return TopicKeys.of_topic("delayq", NAME, shard).meta

    def shard(self, id: str) -> int:
        return zlib.crc32(id.encode()) % self.shards


@contextmanager
def consuming(scene: Scene, face: str, lease: float = 30) -> Iterator[None]:
    """Run a consumer of the sync or the async API."""
    if face == "sync":
        with Queue(NAME, url=scene.url, shards=scene.shards, lease=lease) as queue:
            consumer = Consumer(queue, scene.note, concurrency=4)
            consumer.start()
            try:
                yield
            finally:
                consumer.stop()
        return
    began, ended = threading.Event(), threading.Event()

    async def note(message: Message) -> None:
        if message.id in scene.waits:
            await asyncio.to_thread(scene.note, message)
        else:
            scene.note(message)

    async def consume() -> None:
        async with aio.Queue(NAME, url=scene.url, shards=scene.shards, lease=lease) as queue:
            consumer = aio.Consumer(queue, note, concurrency=4)
            await consumer.start()
            began.set()
            await asyncio.to_thread(ended.wait)
            await consumer.stop()

    thread = threading.Thread(target=asyncio.run, args=(consume(),))
    thread.start()
    assert began.wait(60)
    try:
        yield
    finally:
        ended.set()
        thread.join()


def measured(scene: Scene, queue: Queue, count: int) -> str:
    """Return throughput, and lateness, as text."""
    seconds = scene.seconds(queue, 4 * count)
    found = sorted(scene.latenesses(queue, count))
    middle, last = found[len(found) // 2], found[len(found) * 99 // 100]
    return f"{4 * count / seconds:7.0f}/s   p50 {middle * 1000:6.1f} ms   p99 {last * 1000:6.1f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description="measure what an unavailable master costs the shards of the others")
    parser.add_argument("--shards", type=int, default=12)
    parser.add_argument("--how", choices=["killed", "frozen"], default="killed")
    parser.add_argument("--first", action="store_true", help="the master of the queue's first shard")
    parser.add_argument("--face", choices=["sync", "async"], default="sync")
    parser.add_argument("--count", type=int, default=1000, help="messages whose lateness is measured")
    options = parser.parse_args()
    binary = shutil.which("redis-server")
    if binary is None:
        parser.error("no redis-server on the path")
    with contextlib.ExitStack() as servers:

        def start(**settings: Any) -> RedisServer:
            server = RedisServer(Path(binary), **settings)
            servers.callback(server.close)
            return server

        scene = Scene(Cluster(start, config=OWN_SLOTS), options.first, options.shards)
        queue = servers.enter_context(Queue(NAME, url=scene.url, shards=scene.shards))
        queue.send("warm up", id=scene.ids(1)[0])
        servers.enter_context(consuming(scene, options.face))
        print("before", measured(scene, queue, options.count))  # noqa: T201
        with scene.away(options.how):
            print("during", measured(scene, queue, options.count))  # noqa: T201
        print("after ", measured(scene, queue, options.count))  # noqa: T201


if __name__ == "__main__":
    main()
