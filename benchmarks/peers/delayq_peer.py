"""delayq, through its public API; in the environment that runs this."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from messages import Message, due_in
from peer import Peer, Run, Verb
from protocol import WARM_UP, main

import delayq
from delayq import Consumer, Outgoing, Queue


class DelayqPeer(Peer):
    name = "delayq"
    version = delayq.__version__
    throughput = "Consumer(queue, handler, concurrency=8), the defaults; send_many of 10,000, which it splits itself"
    latency = "the same"
    bulk_size = 10_000
    keeps = "@queue.task(results=…), and its messages in send_many"
    options: ClassVar = {"batch": 500, "threads": 8}  # the size of a receive; the threads of send-threads

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.queue = Queue("bench", url=run.url)
        self.outgoing = self._of_task() if run.results else self._plain

    def _plain(self, message: Message) -> Outgoing:
        return Outgoing(message.payload, at=message.at)

    def _of_task(self) -> Callable[[Message], Outgoing]:
        """Register a task whose results are kept; return what makes its messages."""

        @self.queue.task(results=self.results)
        def handle(payload: str) -> str:
            self.tally.note(payload)
            return payload

        return lambda message: handle.options(at=message.at).message(message.payload)

    def send_each(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.queue.send(message.payload, at=message.at)

    def send_bulk(self, batches: Iterable[list[Message]]) -> None:
        for batch in batches:
            self.queue.send_many([self.outgoing(message) for message in batch])

    def consume(self) -> None:
        consumer = Consumer(self.queue, lambda message: self.tally.note(message.payload), concurrency=8)
        self.tally.ready()
        consumer.run()

    def verbs(self) -> dict[str, Verb]:
        """Return receive, which takes and acks batches, and send-threads, which sends from several threads."""
        return {"receive": self._receive, "send-threads": self._send_threads}

    def _receive(self, options: argparse.Namespace) -> dict[str, Any]:
        self.tally.ready()
        while True:
            messages = self.queue.receive(max_messages=options.batch, wait=1)
            for message in messages:
                self.tally.note(message.payload)
            if messages:
                self.queue.ack(messages)

    def _send_threads(self, options: argparse.Namespace) -> dict[str, Any]:
        began, ended = [], []
        everybody = threading.Barrier(options.threads)
        share = -(-options.messages // options.threads)

        def send() -> None:
            self.send_each(due_in(WARM_UP // options.threads, options.delay, options.size))
            everybody.wait()
            began.append(time.perf_counter())
            self.send_each(due_in(share, options.delay, options.size))
            ended.append(time.perf_counter())

        threads = [threading.Thread(target=send) for _ in range(options.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {"seconds": max(ended) - min(began), "messages": share * options.threads}


if __name__ == "__main__":
    main(DelayqPeer)
