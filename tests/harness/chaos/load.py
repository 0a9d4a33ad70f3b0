"""A queue in use, with its own producers and consumers, which write what they see into their own folder."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from tests.harness.chaos import history
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.world import Broken, World
from tests.harness.waiting import eventually

RESUMED_SECONDS = 60.0


class Load:
    """One queue in use; several can share servers and their troubles.

    Args:
        world: the world whose seed and size are used; the journals are separate.
        name: the name of the queue and the folder, and the prefix of ids.
        count: the number of messages.
        rate: messages per second.
        lease: seconds, in the long form.
        producing, consuming: more settings of the tasks, see `tests.harness.chaos.programs`.
    """

    def __init__(
        self,
        world: World,
        url: str,
        name: str,
        *,
        count: int,
        rate: float,
        lease: float = 2.0,
        shards: int = 1,
        consumers: int = 2,
        producing: dict[str, Any],
        consuming: dict[str, Any],
    ) -> None:
        lease = world.lease(lease)
        folder = world.folder / name
        folder.mkdir()
        self.count = count
        self.world = World(folder, world.seed, world.size)
        options = {"shards": shards}
        self.queue = self.world.queue(url, name, lease=lease, shards=shards)
        task = {"name": name, "count": count, "rate": rate, "options": options} | producing
        self.producer = self.world.producer(url, name, **task)
        consuming = {"lease": lease, "options": options} | consuming
        self.consumers = [self.world.consumer(url, name, **consuming) for _ in range(consumers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.world.close()

    def flows(self, seconds: float = RESUMED_SECONDS) -> None:
        """Wait until messages have been handled; raise Broken if none are."""
        if not eventually(lambda: self.queue.stats().acked > 0, seconds):
            raise Broken(f"nothing was handled within {seconds} s: {self.queue.stats()}; {self.world.log()}")

    def ended(self, seconds: float) -> Verdict:
        """Wait for the producer and the drain, stop the consumers, and judge."""
        self.world.finish(self.producer, seconds)
        self.world.drain(self.queue, seconds)
        for consumer in self.consumers:
            self.world.stop(consumer)
        return self.world.verdict(self.queue)

    def goes_on(self) -> float:
        """Wait until each consumer has received something new; return the seconds. Raise Broken if one has not."""
        journals = [self.world.folder / f"consumer-{consumer.pid}.jsonl" for consumer in self.consumers]
        starts = [journal.stat().st_size for journal in journals]
        began, since_ms = time.monotonic(), time.time() * 1000
        for journal, start in zip(journals, starts, strict=True):
            if not eventually(partial(is_handed_something, journal, start, since_ms), RESUMED_SECONDS):
                raise Broken(f"{journal.stem} does not go on; {self.world.log()}")
        return time.monotonic() - began

    def sends_again(self, since: float) -> float:
        """Return the seconds from a monotonic time until a send was acknowledged; infinite if none was."""
        events = history.read(self.world.folder)
        return next((event.at - since for event in events if event.kind == "sent" and event.at > since), float("inf"))


def is_handed_something(journal: Path, start: int, since_ms: float) -> bool:
    """Whether there is, after the first `start` bytes, a delivery that the server handed out after a given time."""
    with journal.open("rb") as file:
        file.seek(start)
        lines = file.read().splitlines(keepends=True)
    events = [msgspec.json.decode(line, type=history.Event) for line in lines if line.endswith(b"\n")]
    return any(event.kind == "delivered" and event.ms > since_ms for event in events)


@contextmanager
def trouble(loads: Sequence[Load], what: str) -> Iterator[None]:
    """Something is wrong with the servers that all these loads use."""
    with ExitStack() as stack:
        for load in loads:
            stack.enter_context(load.world.trouble(what))
        yield
