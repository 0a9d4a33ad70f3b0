# /// script
# requires-python = ">=3.11"
# dependencies = ["celery[redis]==5.7.0", "redis==8.1.0", "hiredis==3.5.0"]
# ///
"""Celery on Redis."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import Any

from celery import Celery
from celery.signals import worker_ready
from messages import Message
from peer import Peer, Run
from protocol import main

POOLS: dict[str, dict[str, Any]] = {
    "throughput": {"pool": "solo", "concurrency": 1},
    "latency": {"pool": "threads", "concurrency": 8},
}


class CeleryPeer(Peer):
    name = "Celery"
    version = importlib.metadata.version("celery")
    throughput = (
        "pool solo (prefork forks; threads were slower), worker_prefetch_multiplier=0, no limit (docs: a large one for "
        "many short tasks), results ignored; no gossip, mingle, heartbeats"
    )
    latency = "the same, with 8 threads, which were a little earlier"
    note = "All tasks with an ETA wait in the worker's memory. They are acked before they run, which is the default."
    keeps = "the result backend on the same Redis, result_expires=…"
    no_bulk = "tasks are published one by one; group and chunks loop over them"

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.app = Celery("bench", broker=run.url)
        self.app.conf.update(
            task_ignore_result=not run.results, worker_prefetch_multiplier=0, broker_connection_retry_on_startup=True
        )
        if run.results:
            self.app.conf.update(result_backend=run.url, result_expires=run.results)

        @self.app.task(name="handle")
        def handle(payload: str) -> str:
            self.tally.note(payload)
            return payload

        self.task = handle

    def send_each(self, messages: Iterable[Message]) -> None:
        with self.app.producer_pool.acquire(block=True) as producer:  # docs: one producer for many tasks
            for message in messages:
                self.task.apply_async((message.payload,), eta=message.at, producer=producer)

    def consume(self) -> None:

        @worker_ready.connect(weak=False)
        def ready(**_: Any) -> None:
            self.tally.ready()

        self.app.Worker(
            **POOLS[self.setting],
            loglevel="ERROR",
            quiet=True,
            without_gossip=True,
            without_mingle=True,
            without_heartbeat=True,
        ).start()


if __name__ == "__main__":
    main(CeleryPeer)
