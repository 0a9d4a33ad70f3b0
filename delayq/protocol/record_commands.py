"""The calls on the record of a queue or a topic: how many shards it has, since when, and its configuration."""

from __future__ import annotations

from collections.abc import Callable

from delayq.model.envelope import QUEUE_FORMAT
from delayq.model.settings import FIELDS
from delayq.protocol.command import Command, script, texts
from delayq.protocol.replies import OpenedQueue, _read_opened


class RecordCommands:
    """The calls on the record in one shard.

    Args:
        meta: the key of the record.
        clock: returns the time, ms, that the scripts use, or '' for the server's own.
    """

    def __init__(self, meta: str, clock: Callable[[], float | str]) -> None:
        self._meta = meta
        self._clock = clock

    def open_queue(self, shards: int | None, create: bool) -> Command[OpenedQueue]:
        words = (1, self._meta, QUEUE_FORMAT, shards or "", 1 if create else "", self._clock(), *FIELDS)
        return Command(self._meta, texts(words), _read_opened, script("open_queue"))

    def keep_record(self, shards: int, since: bytes) -> Command[int]:
        """Store a copy of the record in another shard than the first."""
        return Command(self._meta, texts(("HSET", self._meta, "shards", shards, "since", since)), int)
