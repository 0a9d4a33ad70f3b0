"""Copies of a queue's record: each shard of several has one, for clients that begin while the first shard is away."""

from __future__ import annotations

from collections.abc import Sequence

from delayq.errors import QueueMismatch
from delayq.protocol.operation import Operation
from delayq.protocol.queue_commands import QueueCommands
from delayq.protocol.replies import OpenedQueue

LOOK_SECONDS = 1.0  # between two looks for the record while its shard is away
MOST_ASKED = 16  # shards, if their number is not known: with three masters, all of these are on one in 1 of 10 million


def keep(shards: Sequence[QueueCommands], since: bytes) -> Operation[None]:
    """Write the record to the other shards, where it is not yet; those that cannot be reached get it in a minute."""
    yield [scripts.keep_record(len(shards), since) for scripts in shards[1:]]


def find(shards: Sequence[QueueCommands], expected: int | None) -> Operation[OpenedQueue | None]:
    """Return the record as one of these shards has it; None if none has, or none can be reached.

    Raises:
        FormatTooNew, ShardsMismatch
    """
    for reply in (yield [scripts.open_queue(expected, create=False) for scripts in shards]):
        if isinstance(reply, QueueMismatch):
            raise reply
        if isinstance(reply, OpenedQueue) and reply.recorded:
            return reply
    return None
