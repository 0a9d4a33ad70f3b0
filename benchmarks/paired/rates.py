"""How fast delayq is on its own queue, compared with the bare scripts."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

import click
import redis
from delayq.cli.bench import clear, home
from delayq.cli.connection import ServerOptions

from benchmarks.paired.bare_scripts import BareScripts
from benchmarks.paired.consumer import DrainOrder
from benchmarks.paired.process import ConsumerProcess
from benchmarks.paired.samples import PairedRates, alternate
from delayq.model.delivery import Outgoing
from delayq.protocol.queue_commands import MAX_IDS
from delayq.queue import Queue

HOUR = 3600.0  # seconds: not due during the measurement
CONSUMER_SECONDS = 120.0  # for work that takes a few
SLOWEST = 1000  # messages per second: a slower consumer times out


@dataclass(frozen=True)
class Bench:
    """A queue to measure, its bare scripts, and a consumer in its own process.

    Attributes:
        payload: of every message.
        client: of the server that holds the queue.
        tick: called after each sample.
        keeps: keep the messages of a sample, which are not due, for the next sample.
    """

    queue: Queue
    bare: BareScripts
    apart: ConsumerProcess
    payload: bytes
    client: redis.Redis
    tick: Callable[[], None]
    keeps: bool = False

    def clear(self) -> None:
        """Delete the queue's keys."""
        clear(self.queue)

    def due(self, count: int) -> None:
        """Send `count` messages that are due at once."""
        self.bare.send_bulk(count, due="+1")
        time.sleep(0.002)

    def send_one(self, count: int, runs: int) -> PairedRates:
        """Send messages one by one."""
        return self._pair(count, self._send_one, self.bare.send_one, runs)

    def send_bulk(self, count: int, runs: int) -> PairedRates:
        """Send messages with `send_many`."""
        return self._pair(count, self.send_many, self.bare.send_bulk, runs)

    def send_threads(self, count: int, runs: int, threads: int) -> PairedRates:
        """Send messages one by one from several threads; the bare scripts use only one."""
        return self._pair(count, lambda count: self._send_threads(count, threads), self.bare.send_one, runs)

    def drain(self, count: int, runs: int) -> PairedRates:
        """Let a consumer whose handler does nothing take and ack the due messages."""
        return self._pair(count, self.consume, self.bare.drain, runs, filled=True)

    def pull(self, count: int, runs: int) -> PairedRates:
        """Take messages with `receive`, up to 500 at once, and `ack` them."""
        return self._pair(count, self._pull, self.bare.pull, runs, filled=True)

    def send_many(self, count: int, delay: float = HOUR) -> float:
        """Send messages in bulk; return the seconds it took."""
        began = time.perf_counter()
        self.queue.send_many([Outgoing(self.payload, delay=delay) for _ in range(count)])
        return time.perf_counter() - began

    def consume(self, count: int) -> float:
        """Let the consumer take all `count` due messages; return the seconds it took."""
        acked = self.queue.stats().acked
        self.apart.begin(DrainOrder(self.queue.name, count))
        seconds = self.apart.end(CONSUMER_SECONDS + count / SLOWEST).seconds
        _expect(count, self.queue.stats().acked - acked)
        return seconds

    def _pair(
        self, count: int, own: Callable[[int], float], bare: Callable[[int], float], runs: int, filled: bool = False
    ) -> PairedRates:
        def rate(measure: Callable[[int], float]) -> float:
            if filled:
                self.due(count)
            seconds = measure(count)
            if not self.keeps:
                self.clear()
            self.tick()
            return count / seconds

        return alternate(lambda: rate(own), lambda: rate(bare), runs)

    def _send_one(self, count: int) -> float:
        send, payload = self.queue.send, self.payload
        began = time.perf_counter()
        for _ in range(count):
            send(payload, delay=HOUR)
        return time.perf_counter() - began

    def _send_threads(self, count: int, threads: int) -> float:
        begin = threading.Barrier(threads + 1)

        def work(part: int) -> None:
            begin.wait()
            self._send_one(part)

        parts = [count // threads + (number < count % threads) for number in range(threads)]
        workers = [threading.Thread(target=work, args=(part,)) for part in parts]
        sent = self.queue.stats().sent
        for worker in workers:
            worker.start()
        begin.wait()
        began = time.perf_counter()
        for worker in workers:
            worker.join()
        seconds = time.perf_counter() - began
        _expect(count, self.queue.stats().sent - sent)
        return seconds

    def _pull(self, count: int) -> float:
        acked = 0
        began = time.perf_counter()
        while messages := self.queue.receive(MAX_IDS):
            acked += sum(self.queue.ack(messages))
        seconds = time.perf_counter() - began
        _expect(count, acked)
        return seconds


@contextmanager
def bench(server: ServerOptions, size: int, tick: Callable[[], None]) -> Generator[Bench]:
    """Yield the queue to measure; delete its keys at the end.

    Args:
        size: bytes of a payload.
        tick: called after each sample.
    """
    payload = b"x" * size
    # With its own client, like a user's queue: one that shares its client is slower.
    queue = Queue(f"delayq-bench-{secrets.token_hex(4)}", url=server.url, prefix=server.prefix)
    try:
        with BareScripts(queue, payload) as bare, ConsumerProcess(server) as apart:
            yield Bench(queue, bare, apart, payload, home(queue), tick)
    finally:
        clear(queue)
        queue.close()


def _expect(wanted: int, found: int) -> None:
    if wanted != found:
        raise click.ClickException(f"{wanted} messages were expected, and {found} counted: the figures are void")
