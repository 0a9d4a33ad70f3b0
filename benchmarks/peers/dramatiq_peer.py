# /// script
# requires-python = ">=3.11"
# dependencies = ["dramatiq==2.2.1", "redis==8.1.0", "hiredis==3.5.0"]
# ///
"""Dramatiq on Redis."""

from __future__ import annotations

import importlib.metadata
import math
import threading
from collections.abc import Iterable

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from messages import Message
from peer import Peer, Run
from protocol import main

WORKER_TIMEOUT_MS = {"throughput": 1000, "latency": 2}


class DramatiqPeer(Peer):
    name = "Dramatiq"
    version = importlib.metadata.version("dramatiq")
    throughput = (
        "RedisBroker, one process of 8 threads, prefetch of 16 messages and 8,000 delayed ones, all as documented, "
        "with the default middleware (docs warn against leaving it out); fewer threads, more prefetch and gevent were "
        "not faster"
    )
    latency = (
        "the same, with dramatiq_worker_timeout at 2 ms instead of 1,000, which is the longest pause between two "
        "checks of the queues (1 ms keeps a core busy, and makes the slowest messages later)"
    )
    note = "Delayed messages are read into memory in the order in which they were sent, up to 8,000 at a time."
    no_bulk = "messages are enqueued one by one; group loops over them"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.broker = RedisBroker(url=run.url)

        @dramatiq.actor(broker=self.broker, actor_name="handle", queue_name="bench")
        def handle(payload: str) -> None:
            self.tally.note(payload)

        self.actor = handle

    def send_each(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.actor.send_with_options(args=(message.payload,), delay=math.ceil(message.delay * 1000))

    def consume(self) -> None:
        worker = dramatiq.Worker(self.broker, worker_threads=8, worker_timeout=WORKER_TIMEOUT_MS[self.setting])
        worker.start()
        self.tally.ready()
        threading.Event().wait()


if __name__ == "__main__":
    main(DramatiqPeer)
