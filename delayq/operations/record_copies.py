"""The record of a queue or a topic, which says how many shards it has.

The first shard has it. Each other one has a copy, for clients that begin while the first shard is away.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from delayq.errors import QueueMismatch, ServerNotReady, ServerUnreachable
from delayq.model.validation import Kind
from delayq.operations import registry
from delayq.protocol.discovery import registry_key
from delayq.protocol.operation import Operation, execute
from delayq.protocol.record_commands import RecordCommands
from delayq.protocol.replies import OpenedQueue

T = TypeVar("T")
C = TypeVar("C", bound=RecordCommands[Any])

LOOK_SECONDS = 1.0  # between two looks for the record while its shard is away
MOST_ASKED = 16  # shards, if their number is not known: with three masters, all of these are on one in 1 of 10 million


class RecordedContext(Generic[C]):
    """The shards of a queue or topic, and its record.

    Args:
        expected: the number of shards, or None for the recorded one.

    Attributes:
        spans_nodes: whether its shards may be on several nodes, so that one may be away while the others are not.
        is_away: whether the node of a key is known to be unavailable.
        shards: the calls of each shard.
        only_shard: the calls of the only shard; None if there are several.
        is_recorded: whether Redis had the record when this was last checked, perhaps long ago.
        open_until: until when the record need not be checked again, on the monotonic clock.
    """

    def __init__(self, expected: int | None) -> None:
        self.spans_nodes: Callable[[], bool] = bool
        self.is_away: Callable[[str], bool] = lambda _: False
        self._expected = expected

    def _forget_record(self) -> None:
        self.is_recorded = False
        self._since = b""
        self.open_until = -math.inf
        self._use_shards(1)

    def _make(self, number: int) -> C:
        """Return the calls of a shard."""
        raise NotImplementedError

    @property
    def expected_shards(self) -> int | None:
        """The number of shards that the client was given; None for the recorded one."""
        return self._expected

    @property
    def is_open(self) -> bool:
        """Whether Redis has the record, and this was checked within the last minute."""
        return self.is_recorded and time.monotonic() <= self.open_until

    def outlives(self, error: object) -> bool:
        """Whether an error means that one of several shards is unavailable, while the others may be served."""
        return len(self.shards) > 1 and isinstance(error, ServerNotReady | ServerUnreachable) and self.spans_nodes()

    def unwrap(self, result: T | Exception, instead: T) -> T:
        """Return a result, or `instead` if only its shard is unavailable; raise any other error."""
        if not isinstance(result, Exception):
            return result
        if self.outlives(result):
            return instead
        raise result

    def _read_record(self, create: bool) -> Operation[tuple[OpenedQueue, bool] | None]:
        """Return the record, and whether it is a copy; None if it is known and its shard is away: it stays valid."""
        try:
            return (yield from execute(self.shards[0].open_queue(self._expected, create))), False
        except (ServerNotReady, ServerUnreachable) as error:
            if self.is_recorded and self.outlives(error):
                self.open_until = time.monotonic() + LOOK_SECONDS
                return None
            if self.is_recorded or self._expected == 1 or not self.spans_nodes():
                raise
            others = [self._make(number) for number in range(1, self._expected or MOST_ASKED)]
            found = yield from find(others, self._expected)
            if found is None:
                raise
            return found, True

    def _note_record(self, record: OpenedQueue, seconds: float) -> None:
        """Use a record for some seconds."""
        if record.shards != len(self.shards):
            self._use_shards(record.shards)
        self.is_recorded, self._since = bool(record.recorded), record.since
        self.open_until = time.monotonic() + seconds if self.is_recorded else -math.inf

    def _use_shards(self, count: int) -> None:
        self.shards = [self._make(number) for number in range(count)]
        self.only_shard = self.shards[0] if count == 1 else None

    def _keep_copies(self) -> Operation[None]:
        """Write the record to the other shards; those that cannot be reached get it in a minute."""
        if len(self.shards) > 1:
            yield [scripts.keep_record(len(self.shards), self._since) for scripts in self.shards[1:]]

    def _register(self, prefix: str, kind: Kind, name: str) -> Operation[None]:
        """Add the name to the registry, unless its node is known to be unavailable."""
        if not self.is_away(registry_key(prefix, kind)):
            yield from registry.add(prefix, kind, [name])


def find(shards: Sequence[RecordCommands[Any]], expected: int | None) -> Operation[OpenedQueue | None]:
    """Return the record as one of these shards has it; None if none has, or none can be reached.

    Raises:
        FormatTooNew, ShardsMismatch
    """
    replies: list[Any] = yield [scripts.open_queue(expected, create=False) for scripts in shards]
    for reply in replies:
        if isinstance(reply, QueueMismatch):
            raise reply
        if isinstance(reply, OpenedQueue) and reply.recorded:
            return reply
    return None
