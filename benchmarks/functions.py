"""What functions as tasks cost, without and with results: delayq with a task and with a plain handler, in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.paired.samples import alternate
from benchmarks.server import BenchServer
from benchmarks.tasks import HOUR
from delayq import Consumer, Message, Outgoing, Queue

TITLES = {"tasks": "a task", "results": "a task whose result is kept for an hour"}


class Drain:
    """A queue whose messages a handler or a task takes.

    Args:
        message: makes one; a plain one for a handler, that of a task otherwise.
        results: each message leaves a key with its result.
    """

    def __init__(self, queue: Queue, message: Callable[[str], Outgoing], server: BenchServer, results: bool) -> None:
        self._queue, self._message, self._server, self._results = queue, message, server, results

    def rate(self, count: int, text: str) -> float:
        """Return the messages per second of a consumer that drains the queue on an emptied server."""
        self._server.flush()
        self._queue.send_many([self._message(text) for _ in range(count)])
        consumer = Consumer(self._queue)
        began = time.perf_counter()
        handled = consumer.drain()
        seconds = time.perf_counter() - began
        kept = self._server.client.dbsize()
        if (handled, kept >= count) != (count, self._results):
            raise RuntimeError(f"{handled} of {count} messages were handled, {kept} keys kept: the figures are void")
        return count / seconds


@contextmanager
def drains(server: BenchServer) -> Iterator[dict[str, Drain]]:
    """Yield what is measured, by name: "handler", and those of `TITLES`."""
    with Queue("handlers", url=server.url) as plain, Queue("tasks", url=server.url) as tasks:

        @plain.handler
        def handle(message: Message) -> str:
            return str(message.payload["text"])

        @tasks.task
        def task(text: str) -> str:
            return text

        @tasks.task(results=HOUR)
        def kept(text: str) -> str:
            return text

        yield {
            "handler": Drain(plain, lambda text: Outgoing({"text": text}), server, results=False),
            "tasks": Drain(tasks, task.message, server, results=False),
            "results": Drain(tasks, kept.message, server, results=True),
        }


def rates(server: BenchServer, size: int, runs: int, messages: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Return the rates of a consumer of tasks, each measured in turn with that of a consumer with a handler."""
    found, text = {}, "x" * size
    with drains(server) as measured:
        for drain in measured.values():
            drain.rate(messages // 10, text)  # connects, and loads the scripts
        for name, title in TITLES.items():
            paired = alternate(
                lambda name=name: measured[name].rate(messages, text),  # type: ignore[misc]
                lambda: measured["handler"].rate(messages, text),
                runs,
            )
            found[name] = paired.as_record()
            say(f"drain, {title}: {paired.median:,.0f}/s, {1 - paired.ratio:.1%} less than a handler")
    return found
