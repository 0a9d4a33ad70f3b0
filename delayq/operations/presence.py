"""Heartbeats: a consumer reports to Redis that it is alive and what it does, in a round trip that it makes anyway."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import chain
from typing import Any, TypeVar

from delayq.errors import DelayqError, ServerUnreachable
from delayq.log import log
from delayq.model import consumer_info
from delayq.model.interval import Interval
from delayq.model.queue_stats import QueueStats
from delayq.model.task_runs import RunCounter
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute, gather, unwrap
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.replies import ConsumersReply

SECONDS = 9.5
"""The shortest time between two reports of a consumer. An idle one looks once a second, so it reports every 10 s."""

T = TypeVar("T")


def consumers(context: QueueContext) -> Operation[list[consumer_info.ConsumerInfo]]:
    """Return the consumers that were seen within the last hour, by name."""
    shards = yield from context.opened()
    found = yield from gather(_pages(shards[0]))
    if context.outlives(found[0]):  # meanwhile they report to another shard
        found = [each for each in (yield from gather(*map(_pages, shards[1:]))) if not context.outlives(each)]
    newest: dict[str, tuple[int, int, bytes]] = {}
    for page in chain.from_iterable(map(unwrap, found)):
        for name, seen_ms, document in page.reports:
            if name not in newest or newest[name][1] < seen_ms:
                newest[name] = page.now_ms, seen_ms, document
    read = (consumer_info.read(name, *seen) for name, seen in newest.items())
    return sorted((each for each in read if each is not None), key=lambda each: each.name)


def _pages(scripts: QueueCommands) -> Operation[list[ConsumersReply]]:
    """Read all pages; a consumer that reports meanwhile may be on two, but is on one at least."""
    pages = [(yield from execute(scripts.consumers()))]
    while pages[-1].more:
        pages.append((yield from execute(scripts.consumers(pages[-1].more))))
    return pages


class Presence:
    """Reports every 10 s that a consumer is alive, unless its claims are refused: only its own timer says when.

    The report goes to the first shard that is available, as a consumer serves them all. It includes the queue's sample
    of the minute, on each shard. Nothing is written for a queue that is not recorded.

    Args:
        name: of the consumer.
        describe: returns the consumer's report.
        times: returns the histogram of its handlers' run times so far.
        tasks: the names of its tasks; None for any that are found.

    Attributes:
        tasks: counts the runs of its tasks; None if it has none.
    """

    def __init__(
        self,
        context: QueueContext,
        name: str,
        describe: Callable[[], bytes],
        times: Callable[[], Sequence[int]] = tuple,
        tasks: Collection[str] | None = (),
    ) -> None:
        self.name = name
        self.tasks = RunCounter(tasks) if tasks is None or tasks else None
        self._context = context
        self._describe = describe
        self._times = times
        self._sent: dict[str, int] = {}  # already in the queue's statistics, by their fields
        self._interval = Interval(SECONDS)
        self._is_served = False  # by the first reply, and then by one every 10 s
        self._has_appeared = False

    def beside(self, operation: Operation[T]) -> Operation[T]:
        """Return an operation; when a report is due, one that includes it."""
        return operation if self._is_served and self._interval.left() else self._noting(operation)

    def report(self) -> Operation[None]:
        """Report if it is time, in a round trip of its own: for a consumer that makes no other."""
        if self._is_served and self._context.is_recorded and self._interval.due():
            runs = self._unreported()
            self._note(runs, (yield self._calls(runs)))

    def leave(self) -> Operation[None]:
        """Deregister the consumer, and report what it has not reported yet."""
        runs = self._unreported()
        if self._has_appeared or (runs and self._context.is_recorded):
            first, shard = self._context.shards[0], self._shard()
            calls = [shard.deregister(self.name, runs)]
            if shard is not first:
                calls.append(first.deregister(self.name))
            self._note(runs, (yield calls))

    def _shard(self) -> QueueCommands:
        """Return the first shard that answered the last claim."""
        shards, outages = self._context.shards, self._context.outages
        return next((shard for shard in shards if not outages.has(shard.keys.meta)), shards[0])

    def _noting(self, operation: Operation[T]) -> Operation[T]:
        """Run an operation together with the report; it only gets its own replies and errors."""
        context, noted, is_lost = self._context, False, False
        try:
            calls = next(operation)
            while True:
                note: list[Command[Any]] = []
                recorded = context.is_recorded
                if self._is_served and recorded and not noted:
                    runs = self._unreported()
                    note = self._calls(runs)
                try:
                    replies = yield [*calls, *note]
                except BaseException as error:  # noqa: BLE001  # it is the operation's to handle
                    is_lost = True
                    calls = operation.throw(error)
                    continue
                own, is_lost = replies[: len(calls)], False
                if note:
                    noted = True
                    self._interval.due()
                    self._note(runs, replies[len(calls) :])
                elif recorded and not (own and all(map(context.outlives, own))):  # other shards may serve it
                    self._is_served = not any(map(_refuses, own))
                calls = operation.send(own)
        except StopIteration as stop:
            self._is_served = context.is_recorded
            return stop.value  # type: ignore[no-any-return]  # what the generator returns
        except Exception:
            self._is_served = self._is_served and not is_lost
            raise

    def _calls(self, runs: dict[str, int]) -> list[Command[Any]]:
        samples = [shard.sample(QueueStats.COUNTERS) for shard in self._context.shards]
        return [self._shard().heartbeat(self.name, self._describe(), runs), *samples]

    def _unreported(self) -> dict[str, int]:
        """Return the run times and runs that were not reported yet; a lost report is sent again."""
        counts = {f"took:{bucket}": count for bucket, count in enumerate(self._times())}
        if self.tasks is not None:
            counts |= self.tasks.counts
        return {field: new for field, count in counts.items() if (new := count - self._sent.get(field, 0))}

    def _note(self, runs: dict[str, int], replies: Sequence[Any]) -> None:
        """Process the replies to a report."""
        if not isinstance(replies[0], DelayqError):
            self._has_appeared = True
            for field, count in runs.items():
                self._sent[field] = self._sent.get(field, 0) + count
        for error in replies:
            if isinstance(error, DelayqError):  # no message is affected
                log.debug("consumer not recorded", queue=self._context.name, consumer=self.name, error=str(error))


def _refuses(reply: Any) -> bool:
    """Whether a reply is a refusal; that a shard is away says nothing about the others."""
    return isinstance(reply, DelayqError) and not isinstance(reply, ServerUnreachable)
