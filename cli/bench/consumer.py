"""The consumer of ``delayq bench``, in a process of its own: ``python -m delayq.cli.bench.consumer PREFIX``.

Reads orders from stdin, one JSON object a line, and obeys one after another; ends with stdin. To each it answers the
line ``ready`` once it consumes, then a line with a `Result`.
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

from delayq.consumer import Consumer
from delayq.model.message import Message
from delayq.queue import Queue

from ..logging import configure
from .samples import percentile
from .server_load import clock_offset, home

READY = b"ready\n"


class DrainOrder(msgspec.Struct, frozen=True):
    """What to consume.

    Attributes:
        queue: its name.
        messages: how many, or None to go on until the process is ended, or for `seconds`.
        concurrency: threads that run the handler.
        seconds: for how long, whatever comes; the result then tells every lateness.
    """

    queue: str
    messages: int | None
    concurrency: int = 8
    seconds: float | None = None


class DrainResult(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        messages: handled.
        seconds: what they took; without the start, for the first tenth is taken to have been as quick as the others.
        p50_ms, p99_ms, max_ms: from the due time to the handler, by the server's clock; 0 when nothing came.
        early: hand-outs before the due time, by the server's clock.
        cpu_seconds: processor time of this process.
        late_ms: each lateness, least first, where the order says for how long.
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
    """A handler that does nothing but take the time."""

    def __init__(self) -> None:
        self.times = array("d")  # seconds
        self.late_ms = array("d")
        self.early = 0

    def __call__(self, message: Message) -> None:
        """Take the time of a message."""
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
    """Obey the orders."""
    configure()
    logging.getLogger("delayq").setLevel(logging.ERROR)  # whoever gives the orders has warned of the server's settings
    orders: queue.SimpleQueue[DrainOrder] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while True:
        order = orders.get()
        with Queue(order.queue, prefix=sys.argv[1]) as source:
            _say(msgspec.json.encode(_consume(source, order)) + b"\n")


def _listen(orders: queue.SimpleQueue[DrainOrder]) -> None:
    for line in sys.stdin.buffer:
        orders.put(msgspec.json.decode(line, type=DrainOrder))
    os._exit(0)  # also in the middle of a run: nobody waits for it any more


def _consume(source: Queue, order: DrainOrder) -> DrainResult:
    offset = clock_offset(home(source))
    tally = DrainTally()
    handler = (
        tally if order.messages or order.seconds else _ignore
    )  # what goes on for ever must not keep a time for each
    consumer = Consumer(source, handler, concurrency=order.concurrency)
    _say(READY)
    began = time.process_time()
    if order.seconds:
        threading.Timer(order.seconds, consumer.stop).start()
    consumer.run(max_messages=order.messages)
    result = tally.result(offset, time.process_time() - began)
    return result if order.seconds else msgspec.structs.replace(result, late_ms=[])


def _ignore(_message: Message) -> None:
    """Handle a message of which nothing is to be kept."""


def _say(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
