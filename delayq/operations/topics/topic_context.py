"""A topic as its operations see it: its settings and its shards."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from delayq.errors import InvalidInput
from delayq.model.envelope import MAX_PAYLOAD_BYTES
from delayq.model.interval import Interval
from delayq.model.placement import MAX_SHARDS
from delayq.model.record import Entry, Extent, Record
from delayq.model.units import Seconds, milliseconds
from delayq.model.validation import is_whole
from delayq.operations import record_copies
from delayq.operations.queue_context import DEAD_RETENTION, IS_NEW, LOOK_SECONDS
from delayq.operations.record_copies import RecordedContext
from delayq.operations.shard_outages import Outages
from delayq.protocol.operation import Operation, execute
from delayq.protocol.replies import OpenedQueue
from delayq.protocol.topic_commands import TopicCommands
from delayq.protocol.topic_keys import TopicKeys

T = TypeVar("T")

PURGE_SECONDS = 60.0  # between two searches for old dead letters


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The settings that each client of a topic chooses for itself.

    Attributes:
        max_length: records that `publish` keeps in each shard; None for all.
        exact: whether to keep exactly that many. Otherwise up to about a hundred more stay, at much lower cost.
        max_payload: bytes.
        dead_retention: how long the dead letters of groups are kept; None for ever.
    """

    max_length: int | None = None
    exact: bool = False
    max_payload: int = MAX_PAYLOAD_BYTES
    dead_retention: Seconds | None = DEAD_RETENTION

    def __post_init__(self) -> None:
        check_length(self.max_length)
        if not is_whole(self.max_payload) or self.max_payload < 1:
            raise InvalidInput(f"max_payload {self.max_payload!r} is not a whole number of bytes, 1 or more")
        if self.dead_retention is not None:
            milliseconds(self.dead_retention, "dead_retention")


class TopicContext(RecordedContext[TopicCommands]):
    """One topic: its shards, and the check that they match what this client expects.

    Args:
        keys: makes the keys of a shard.
        shards: 1 to 1,024, or None for the recorded number.
        clock: the time, ms, that delayed records use, or '' for the server's own.

    Attributes:
        next_shard: counts records without a key: each goes to the next shard.
        outages: the outages of its shards that polls have met.
        purging: for each group, when to delete old dead letters.
        reclaims: counts reclaims: each begins with the next shard.
    """

    def __init__(
        self,
        name: str,
        keys: Callable[[int], TopicKeys],
        shards: int | None,
        settings: TopicSettings,
        clock: Callable[[], float | str] = str,
    ) -> None:
        if shards is not None and not (is_whole(shards) and 1 <= shards <= MAX_SHARDS):
            raise InvalidInput(f"shards {shards!r} is not a number from 1 to {MAX_SHARDS:,}")
        super().__init__(shards)
        self.name = name
        self.settings = settings
        self.next_shard = self.reclaims = 0
        self.outages = Outages(topic=name)
        self.purging: defaultdict[str, Interval] = defaultdict(lambda: Interval(PURGE_SECONDS))
        self._keys = keys
        self._clock = clock
        self._forget_record()

    def _make(self, number: int) -> TopicCommands:
        return TopicCommands(self._keys(number), self._clock)

    def opened(self, create: bool = False) -> Operation[list[TopicCommands]]:
        """Return the shards, after a check of the topic's record in Redis: until there is one, then once a minute.

        Args:
            create: record the topic if it is new.

        Raises:
            FormatTooNew, ClientTooOld, ShardsMismatch
        """
        if not self.is_open:
            found = yield from self._read_record(create)
            if found is not None:
                yield from self._take_record(*found, create)
        return self.shards

    def _take_record(self, record: OpenedQueue, is_copy: bool, create: bool) -> Operation[None]:
        self._note_record(record, record_copies.LOOK_SECONDS if is_copy else LOOK_SECONDS)
        if create and not is_copy:
            yield from self._keep_copies()
        if record.recorded == IS_NEW:
            prefix = self.shards[0].keys.stream.partition(":{")[0]
            yield from self._register(prefix, "topic", self.name)

    def reopened(self) -> Operation[bool]:
        """Record the topic again if its record was lost; return whether it was, so that its data were lost, too."""
        known, count, self.is_recorded = self._since, self._expected or len(self.shards), False
        yield from self.opened()
        if not self.is_recorded:
            record = yield from execute(self.shards[0].open_queue(count, create=True))
            yield from self._take_record(record, False, create=True)
        return bool(known) and self._since != known

    def known(self) -> Operation[list[TopicCommands]]:
        """Return the shards as the last check found them, however long ago it was: for records that are in hand.

        What handlers have done is settled even if the topic's record does not fit this client.
        """
        return self.shards if self.is_recorded else (yield from self.opened())

    is_packed = False  # whether an entry may hold several records

    def extent(self, number: int) -> Operation[Extent]:
        """Return the extent of a shard."""
        return (yield from execute(self.shards[number].extent()))

    def unpacked(self, entries: Sequence[Entry], low: str = "-", high: str = "+", reverse: bool = False) -> list[Entry]:
        """Return the records in entries that were read between two bounds: in a topic, these are the entries."""
        del low, high, reverse
        return list(entries)

    def reach(self, high: str) -> str:
        """Return the bound up to which entries may contain records up to `high`."""
        return high

    def shard_for(self, key: str | None) -> TopicCommands:
        """Return the shard for a record: by its key, so that records with one key keep their order, or else in turn."""
        if len(self.shards) == 1:
            return self.shards[0]
        if key is not None:
            return self.shards[zlib.crc32(key.encode()) % len(self.shards)]
        self.next_shard += 1
        return self.shards[self.next_shard % len(self.shards)]

    def number(self, scripts: TopicCommands) -> int:
        """Return the number of a shard."""
        return self.shards.index(scripts)


def check_length(max_length: int | None) -> int | None:
    """Return `max_length` if it is 0 or more, or None; else raise InvalidInput."""
    if max_length is not None and (not is_whole(max_length) or max_length < 0):
        raise InvalidInput(f"max_length {max_length!r} is not a number of records, 0 or more")
    return max_length


def check_deliveries(most: int | None) -> int | None:
    """Return `most` if it is 1 or more, or None for no limit; else raise InvalidInput."""
    if most is not None and not (is_whole(most) and most >= 1):
        raise InvalidInput(f"max_deliveries {most!r} is not a number of deliveries, 1 or more")
    return most


def parts(
    shards: Sequence[TopicCommands], items: Iterable[T], record_of: Callable[[T], Record], most: int
) -> list[tuple[TopicCommands, str, Sequence[T]]]:
    """Split records, or what has one, into parts of at most `most`, each of one shard and one mark of their group.

    Those of a shard that does not exist are left out: the topic was created again, with fewer.
    """
    found: dict[tuple[int, str], list[T]] = {}
    for each in items:
        record = record_of(each)
        if record.shard < len(shards):
            found.setdefault((record.shard, record.group_mark), []).append(each)
    return [
        (shards[number], mark, part) for (number, mark), of_call in sorted(found.items()) for part in cut(of_call, most)
    ]


def cut(items: Sequence[T], most: int) -> list[Sequence[T]]:
    """Split a list into parts of at most `most` items."""
    return [items[start : start + most] for start in range(0, len(items), most)]
