"""The consumer that is measured, in its own process: ``python -m benchmarks.paired.consumer PREFIX``.

Reads orders from stdin, one JSON object per line, runs one after another, and ends with stdin. For each it prints the
line ``ready`` once it consumes, then a line with a `DrainResult`.
"""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from array import array

import msgspec
from delayq.cli.bench import clock_offset, home
from delayq.cli.logging import configure

from benchmarks.paired.samples import percentile
from delayq.consumer import Consumer
from delayq.model.message import Message
from delayq.queue import Queue

READY = b"ready\n"


class DrainOrder(msgspec.Struct, frozen=True):
    """What to consume.

    Attributes:
        queue: its name.
        messages: how many; None to consume until the process is stopped, or for `seconds`.
        concurrency: threads that run the handler.
        seconds: for how long; the result then has every lateness.
    """

    queue: str
    messages: int | None
    concurrency: int = 8
    seconds: float | None = None


class DrainResult(msgspec.Struct, frozen=True):
    """The result of an order.

    Attributes:
        messages: how many were handled.
        seconds: the time they took, without the start: the first tenth counts as if it had the speed of the rest.
        p50_ms, p99_ms, max_ms: from the due time to the handler, by the server's clock; 0 if there were no messages.
        early: deliveries before the due time, by the server's clock.
        cpu_seconds: CPU time of this process.
        late_ms: each lateness, in ascending order, if the order has `seconds`.
    """

    messages: int
    seconds: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    early: int
    cpu_seconds: float
    late_ms: list[float] = []


class DrainTally:
    """A handler that only records the time."""

    def __init__(self) -> None:
        self.times = array("d")  # seconds
        self.late_ms = array("d")
        self.early = 0

    def __call__(self, message: Message) -> None:
        """Record the time of a message."""
        now = time.time()
        self.times.append(now)
        self.late_ms.append(now * 1000 - message.due_ms)
        if message.handed_ms < message.due_ms:
            self.early += 1

    def result(self, offset_ms: float, cpu_seconds: float) -> DrainResult:
        """Sum up."""
        times, count = sorted(self.times), len(self.times)
        if not count:
            return DrainResult(0, 0.0, 0.0, 0.0, 0.0, 0, cpu_seconds)
        warm = count // 10
        seconds = (times[-1] - times[warm]) * count / max(1, count - 1 - warm)
        late = sorted(each + offset_ms for each in self.late_ms)
        p50, p99 = percentile(late, 0.5), percentile(late, 0.99)
        return DrainResult(count, seconds, p50, p99, late[-1], self.early, cpu_seconds, late)


def main() -> None:
    """Run the orders."""
    configure()
    logging.getLogger("delayq").setLevel(
        logging.ERROR
    )  # the parent process has already warned about the server's settings
    orders: queue.SimpleQueue[DrainOrder] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while True:
        order = orders.get()
        with Queue(order.queue, prefix=sys.argv[1]) as source:
            _say(msgspec.json.encode(_consume(source, order)) + b"\n")


def _listen(orders: queue.SimpleQueue[DrainOrder]) -> None:
    for line in sys.stdin.buffer:
        orders.put(msgspec.json.decode(line, type=DrainOrder))
    os._exit(0)  # even in the middle of a run: the parent no longer waits


def _consume(source: Queue, order: DrainOrder) -> DrainResult:
    offset = clock_offset(home(source))
    tally = DrainTally()
    handler = tally if order.messages or order.seconds else _ignore  # an endless run must not keep a time per message
    consumer = Consumer(source, handler, concurrency=order.concurrency)
    _say(READY)
    began = time.process_time()
    if order.seconds:
        threading.Timer(order.seconds, consumer.stop).start()
    consumer.run(max_messages=order.messages)
    result = tally.result(offset, time.process_time() - began)
    return result if order.seconds else msgspec.structs.replace(result, late_ms=[])


def _ignore(_message: Message) -> None:
    """Handle a message and keep nothing."""


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
