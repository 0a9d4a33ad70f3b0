# /// script
# requires-python = ">=3.11"
# dependencies = ["rq==2.12.0", "redis==8.1.0", "hiredis==3.5.0"]
# ///
"""RQ: a worker, and the scheduler that it starts."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
from collections.abc import Iterable
from typing import ClassVar

from messages import Message
from peer import Peer, Run
from protocol import main
from redis import Redis
from rq import Queue, SimpleWorker
from tally import Tally


class RqPeer(Peer):
    name = "RQ"
    version = importlib.metadata.version("rq")
    throughput = (
        "SimpleWorker, which does not fork for each job (docs: think twice in production), result_ttl=0, descriptions "
        "not logged; bulk: enqueue_at in a pipeline of 500 (enqueue_many cannot schedule)"
    )
    latency = "the same: the scheduler checks once a second, as documented, for up to 1,000 jobs"
    note = (
        "There are two processes, because the worker starts a scheduler. Due times are cut to whole seconds, so jobs "
        "run up to a second early."
    )
    keeps = "result_ttl=…"
    consuming: ClassVar[Tally]

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.redis = Redis.from_url(run.url)
        self.queue = Queue("bench", connection=self.redis)

    def send_each(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.queue.enqueue_at(message.at, handle, message.payload, result_ttl=self.results)

    def send_bulk(self, batches: Iterable[list[Message]]) -> None:
        for batch in batches:
            with self.redis.pipeline() as pipeline:
                for message in batch:
                    self.queue.enqueue_at(
                        message.at, handle, message.payload, result_ttl=self.results, pipeline=pipeline
                    )
                pipeline.execute()

    def consume(self) -> None:
        RqPeer.consuming = self.tally
        worker = SimpleWorker([self.queue], connection=self.redis, log_job_description=False)
        self.tally.ready(stop_scheduler)
        worker.work(with_scheduler=True, logging_level="ERROR")


def handle(payload: str) -> str:
    """Handle a job; the worker finds it by the name of this module."""
    RqPeer.consuming.note(payload)
    return payload


def stop_scheduler() -> None:
    """Stop the process that the worker has started."""
    for child in multiprocessing.active_children():
        child.terminate()
        child.join()


if __name__ == "__main__":
    import rq_peer  # RQ takes no functions of __main__

    main(rq_peer.RqPeer)
