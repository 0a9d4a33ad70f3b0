# /// script
# requires-python = ">=3.11"
# dependencies = ["huey==3.5.4", "redis==8.1.0", "hiredis==3.5.0"]
# ///
"""Huey on Redis."""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Iterable

from huey import RedisHuey
from messages import Message
from peer import Peer, Run
from protocol import main


class HueyPeer(Peer):
    name = "Huey"
    version = importlib.metadata.version("huey")
    throughput = (
        "RedisHuey without results, 2 worker threads, no periodic tasks (docs: more workers for throughput; 1 to 8 "
        "threads, 1 to 16 greenlets and PriorityRedisHuey were not faster)"
    )
    latency = "the same, with scheduler_interval=1: the scheduler checks once a second, as often as the docs allow"
    note = "A waiting task is first put into the queue, and a consumer moves it to the schedule. Tasks are not acked."
    no_bulk = "tasks are enqueued one by one; map and group loop over them"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.huey = RedisHuey("bench", url=run.url, results=False)

        @self.huey.task(name="handle")
        def handle(payload: str) -> None:
            self.tally.note(payload)

        self.task = handle

    def send_each(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.task.schedule((message.payload,), eta=message.at)

    def consume(self) -> None:
        consumer = self.huey.create_consumer(workers=2, periodic=False, scheduler_interval=1)
        consumer.start()
        self.tally.ready()
        threading.Event().wait()


if __name__ == "__main__":
    main(HueyPeer)
