"""Heartbeats: a consumer notes in Redis that it lives, and what it does, in a round trip that it makes anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from delayq.errors import DelayqError
from delayq.log import log
from delayq.model import consumer_info
from delayq.model.interval import Interval
from delayq.model.queue_stats import QueueStats
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation, execute

SECONDS = 10.0
"""How often a consumer appears, at the most."""

T = TypeVar("T")


def consumers(context: QueueContext) -> Operation[list[consumer_info.ConsumerInfo]]:
    """Return the consumers that were seen within the last hour, by name."""
    shards = yield from context.opened()
    found = yield from execute(shards[0].consumers())
    read = (consumer_info.read(name, found.now_ms, seen_ms, document) for name, seen_ms, document in found.told)
    return sorted((each for each in read if each is not None), key=lambda each: each.name)


class Presence:
    """When a consumer notes that it lives: every 10 s, while it is served. One whose claims are refused does not.

    The note goes to the first shard: a consumer serves them all. It takes along the queue's sample of the minute, a
    shard each. A queue that is not recorded is left without a trace.

    Args:
        describe: returns what the consumer tells of itself.
        times: returns how many of its handlers ran for how long, by buckets, so far.
    """

    def __init__(
        self, context: QueueContext, describe: Callable[[], bytes], times: Callable[[], Sequence[int]] = tuple
    ) -> None:
        self._context = context
        self._describe = describe
        self._times = times
        self._sent_times: dict[int, int] = {}  # of the times, by bucket, what the queue's statistics have
        self._interval = Interval(SECONDS)
        self._is_served = False  # as far as is known: by what it was answered first, and every 10 s
        self._has_appeared = False

    def beside(self, operation: Operation[T], name: str) -> Operation[T]:
        """Return an operation; when it is time, one that takes along the note that the consumer `name` lives."""
        return operation if self._is_served and self._interval.left() else self._noting(operation, name)

    def leave(self, name: str) -> Operation[None]:
        """Be a consumer no longer, and hand over the times that are left."""
        times = self._untold()
        if self._has_appeared or (times and self._context.is_open):
            self._note(name, times, (yield [self._context.shards[0].deregister(name, times)]))

    def _noting(self, operation: Operation[T], name: str) -> Operation[T]:
        """Run an operation that is not to notice: it is sent its own replies and errors, no more."""
        context, noted = self._context, False
        try:
            calls = next(operation)
            while True:
                note: list[Command[Any]] = []
                opened = context.is_open
                if self._is_served and opened and not noted:
                    times = self._untold()
                    note.append(context.shards[0].heartbeat(name, self._describe(), times))
                    note += [shard.sample(QueueStats.COUNTERS) for shard in context.shards]
                try:
                    replies = yield [*calls, *note]
                except BaseException as error:  # noqa: BLE001  # it is the operation's to handle
                    calls = operation.throw(error)
                    continue
                own = replies[: len(calls)]
                if note:
                    noted = True
                    self._interval.due()
                    self._note(name, times, replies[len(calls) :])
                elif opened:
                    self._is_served = not any(isinstance(each, DelayqError) for each in own)
                calls = operation.send(own)
        except StopIteration as stop:
            self._is_served = context.is_open
            return stop.value  # type: ignore[no-any-return]  # what the generator returns
        except Exception:
            self._is_served = False
            raise

    def _untold(self) -> dict[int, int]:
        """Return the times that no note has handed over: those of one whose reply was lost are handed over again."""
        counted = enumerate(self._times())
        return {bucket: count for bucket, count in ((b, c - self._sent_times.get(b, 0)) for b, c in counted) if count}

    def _note(self, name: str, times: dict[int, int], replies: Sequence[Any]) -> None:
        """Note what a note was answered."""
        if not isinstance(replies[0], DelayqError):
            self._has_appeared = True
            for bucket, count in times.items():
                self._sent_times[bucket] = self._sent_times.get(bucket, 0) + count
        for error in replies:
            if isinstance(error, DelayqError):  # nobody misses a message for it
                log.debug("consumer not recorded", queue=self._context.name, consumer=name, error=str(error))
