"""One typed method for each script of topics: its keys, its arguments, and how to read its reply.

The scripts' headers in ``lua/topics/`` describe what each does, its units, its errors and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.model.record import Entry, Extent, known_mark, text_of
from delayq.model.text import decode_id, encode_id
from delayq.protocol.command import Command, Raw, identity
from delayq.protocol.record_commands import RecordCommands
from delayq.protocol.topic_keys import TopicKeys

T = TypeVar("T")

MAX_RECORDS = 500
"""The most records that one call touches."""

MAX_LOOKED_AFTER = MAX_RECORDS // 2
"""The most for a call that looks up each record separately."""

REQUEUED = "delayq-requeued"
"""The consumer that holds requeued dead letters, and records handed back, until others take them over.

It is not listed among the consumers of a group.
"""


ANY_MARK = "*"
"""The mark of a record that no group has handed out, or whose id alone is known: it fits all."""


class DueRecords(NamedTuple):
    """The reply of due.

    Attributes:
        ids: the ids of due records.
        next_ms: milliseconds until the next one is due; None if no other waits.
        seen: the id after which to read the key that announces an earlier record.
    """

    ids: list[str]
    next_ms: int | None
    seen: str


class Page(NamedTuple):
    """The records that range read, and whether there may be more."""

    entries: list[Entry]
    more: bool


class Polled(NamedTuple):
    """The reply of poll.

    Attributes:
        entries: the records that were handed out.
        next_ms: milliseconds until a waiting record must be appended; None if none waits.
        last: the id after which the next record comes; "" if some were handed out, or there may be more.
        mark: of the group's creation.
        is_late: whether nothing was handed out because the server has executed the call later than it should.
    """

    entries: list[Entry]
    next_ms: int | None
    last: str
    mark: str
    is_late: bool = False


class Redelivered(NamedTuple):
    """The reply of redeliver.

    Attributes:
        records: those that the consumer still holds.
        deliveries: of each of them.
        looked: how many ids the call checked.
        is_late: whether it checked none because the server has executed the call later than it should.
    """

    records: list[Entry]
    deliveries: list[int]
    looked: int
    is_late: bool = False


class Recreated(NamedTuple):
    """The reply of recreate_group.

    Attributes:
        is_new: whether this call has created the group.
        after: the id after which it begins; "0" for the first record.
        records: how many it will receive, or receive again, from the first one on; -1 if it begins after an id.
    """

    is_new: bool
    after: str
    records: int


class ReclaimReply(NamedTuple):
    """The reply of reclaim: where it stopped, '' at the end; the records, the deliveries of each, the group's mark."""

    after: str
    records: list[Entry]
    deliveries: list[int]
    buried: int
    ghosts: int
    now_ms: int
    grace_ms: int
    mark: str


class TopicCommands(RecordCommands[TopicKeys]):
    """The calls of one shard of a topic.

    Args:
        keys: of the shard.
        clock: returns the time, ms, that delayed records use, or '' for the server's own.
    """

    folder = "topics/"

    def __init__(self, keys: TopicKeys, clock: Callable[[], float | str] = str) -> None:
        super().__init__(keys, clock)

    def publish(self, records: Sequence[tuple[str, bytes]], max_length: int | None, exact: bool) -> Command[list[str]]:
        """Take records as pairs: id or "*", envelope."""
        words: list[Raw] = ["" if max_length is None else max_length, 1 if exact else ""]
        for record in records:
            words += record
        # If sent again, a record with a server's id would exist twice, and a given id would be refused as too low.
        return self._call("publish", words, _read_ids, repeats=False)

    def publish_later(self, records: Sequence[tuple[str, Raw, bytes]]) -> Command[list[int]]:
        """Take records as triples: id, due time ('+delay_ms' or ms), envelope."""
        words: list[Raw] = [self._clock()]
        for record in records:
            words += record
        # If sent again, a record that was appended meanwhile would be appended twice.
        return self._call(
            "publish_later", words, identity, [self.keys.record(each[0]) for each in records], repeats=False
        )

    def due(self, limit: int = MAX_RECORDS) -> Command[DueRecords]:
        return self._call("due", [self._clock(), limit], _read_due)

    def append(self, ids: Sequence[str], max_length: int | None = None, exact: bool = False) -> Command[list[str]]:
        keys = [encode_id(self.keys.record(each)) for each in ids]
        cut: list[Raw] = ["" if max_length is None else max_length, 1 if exact else ""]
        return self._call("append", [self._clock(), *cut, *map(encode_id, ids)], _read_ids, keys)

    def cancel(self, record_id: str) -> Command[int]:
        return self._call("cancel", [record_id], int, repeats=False, envelope=self.keys.record(record_id))

    def poll(self, group: str, consumer: str, limit: int, after: str = ">", by_ms: Raw = "") -> Command[Polled]:
        words: list[Raw] = [self._clock(), group, consumer, limit, after, by_ms]
        return self._call("poll", words, _read_polled, repeats=after != ">", watch=self.keys.watch(group))

    def ack(self, group: str, ids: Sequence[str], mark: str) -> Command[int]:
        return self._call("ack", [mark, group, *ids], int, **self.keys.of_group(group))

    def mark(self, group: str) -> Command[str]:
        """Read the mark of a group's creation; a plain command."""
        key = self.keys.watch(group)
        return Command(key, (b"HGET", key, "made"), lambda reply: text_of(reply or b""))

    def reclaim(
        self,
        group: str,
        consumer: str,
        idle_ms: int,
        after: str,
        limit: int,
        most: int | None,
        by_ms: Raw = "",
        is_member: bool = False,
        until_ms: Raw = "",
    ) -> Command[ReclaimReply]:
        words: list[Raw] = [group, consumer, idle_ms, _behind(after), limit, "" if most is None else most]
        words += [by_ms, 1 if is_member else "", until_ms]
        return self._call("reclaim", words, _read_reclaimed, repeats=False, **self.keys.of_group(group))

    def dead_letter(
        self, group: str, consumer: str, record_id: str, reason: str, error: str, mark: str
    ) -> Command[int]:
        words = [group, consumer, record_id, reason, error, mark]
        return self._call("dead_letter", words, int, **self.keys.of_group(group))

    def fail(self, group: str, consumer: str, record_id: str, error: str, mark: str) -> Command[int]:
        words = [group, consumer, record_id, error, mark]
        return self._call("fail", words, int, repeats=False, **self.keys.of_group(group))

    def redeliver(
        self, group: str, consumer: str, ids: Sequence[str], counts: bool, mark: str, by_ms: Raw = ""
    ) -> Command[Redelivered]:
        words: list[Raw] = [group, consumer, "1" if counts else "", by_ms, mark, *ids]
        return self._call("redeliver", words, _read_redelivered, repeats=not counts, **self.keys.of_group(group))

    def hand_back(
        self, group: str, consumer: str, keeper: str, records: Sequence[tuple[str, bool]], mark: str
    ) -> Command[list[int]]:
        """Take records as pairs: id, whether the last delivery counts."""
        words: list[Raw] = [group, consumer, keeper, mark]
        for record_id, begun in records:
            words += (record_id, "1" if begun else "")
        return self._call("hand_back", words, identity, repeats=False, **self.keys.of_group(group))

    def renew(
        self, group: str, consumer: str, ids: Sequence[str], idle_ms: int, mark: str, by_ms: Raw = ""
    ) -> Command[list[int]]:
        words: list[Raw] = [group, consumer, idle_ms, by_ms, mark, *ids]
        return self._call("renew", words, identity, **self.keys.of_group(group))

    def unacked(
        self, group: str, consumer: str, idle_ms: int, after: str, limit: int
    ) -> Command[tuple[str, list[Any]]]:
        """Return the id up to which the call has looked, "" at the end, and the rows."""
        words: list[Raw] = [group, consumer, idle_ms, _behind(after), limit]
        return self._call("unacked", words, lambda reply: (text_of(reply[0]), reply[1]))

    def remove_consumer(self, group: str, consumer: str, heir: str, limit: int = MAX_RECORDS) -> Command[list[int]]:
        words: list[Raw] = [group, consumer, heir, limit]
        return self._call("remove_consumer", words, identity, repeats=False, failures=self.keys.failures(group))

    def drop_idle_consumers(self, group: str, idle_ms: int, names: str, limit: int = MAX_RECORDS) -> Command[int]:
        words: list[Raw] = [group, idle_ms, names, limit, REQUEUED]
        return self._call("drop_idle_consumers", words, int)

    def clear_ghosts(self, group: str, after: str, limit: int = MAX_RECORDS) -> Command[list[Any]]:
        words: list[Raw] = [group, _behind(after), limit]
        return self._call("clear_ghosts", words, identity, failures=self.keys.failures(group))

    def make_group(self, group: str, start: str, move: bool = False) -> Command[int]:
        return self._call("make_group", [group, start, 1 if move else ""], int, watch=self.keys.watch(group))

    def recreate_group(self, group: str, last: str, window_ms: int) -> Command[Recreated]:
        words: list[Raw] = [group, last, window_ms]
        return self._call("recreate_group", words, _read_recreated, watch=self.keys.watch(group))

    def destroy(self, group: str, limit: int = MAX_RECORDS) -> Command[int]:
        return self._call("destroy", [group, limit], int, repeats=False, **self.keys.of_group(group))

    def groups(self, group: str = "") -> Command[list[Any]]:
        return self._call("groups", [group, REQUEUED], identity)

    def lag(self, after: str, limit: int = 1000, to: str = "+") -> Command[list[Any]]:
        return self._call("lag", [after, limit, to], identity)

    def range(self, start: str, end: str, limit: int, reverse: bool = False, stream: str = "") -> Command[Page]:
        """Read records between two ids, from the topic or another of its streams."""
        bounds = (end, start) if reverse else (start, end)
        return self._call(
            "range", [*bounds, limit, "1" if reverse else ""], _read_page, stream=stream or self.keys.stream
        )

    def extent(self) -> Command[Extent]:
        return self._call("extent", [], _read_extent)

    def requeue_dead(self, group: str, consumer: str, ids: Sequence[str]) -> Command[list[int]]:
        words = [group, consumer, *ids]
        return self._call("requeue_dead", words, identity, repeats=False, buried=self.keys.buried(group))

    def delete_dead(self, group: str, ids: Sequence[str]) -> Command[int]:
        key = self.keys.buried(group)
        return Command(key, (b"XDEL", key, *ids), int, repeats=False)

    def dead_length(self, group: str) -> Command[int]:
        key = self.keys.buried(group)
        return Command(key, (b"XLEN", key), int)

    def trim(self, how: str, bound: Raw, exact: bool, dead_of: str | None = None) -> Command[list[int]]:
        """Drop records, or dead letters of a group."""
        key = self.keys.stream if dead_of is None else self.keys.buried(dead_of)
        return self._call("trim", [how, bound, "1" if exact else ""], identity, stream=key)

    def trim_acked(self) -> Command[list[Any]]:
        return self._call("trim_acked", [], identity)

    def shrink(self, name: str) -> Command[list[int]]:
        return self._call("shrink", [name], identity, repeats=False)

    def length(self) -> Command[int]:
        """Count the records; a plain command, like those below."""
        return Command(self.keys.stream, (b"XLEN", self.keys.stream), int)

    def time(self) -> Command[int]:
        """Read the time, ms, that delayed records use."""
        now = self._clock()
        return Command(
            self.keys.meta, ("TIME",), lambda reply: int(now or int(reply[0]) * 1000 + int(reply[1]) // 1000)
        )

    def delete(self, ids: Sequence[str]) -> Command[int]:
        """Delete single records; return how many were there."""
        return Command(self.keys.stream, (b"XDEL", self.keys.stream, *ids), int, repeats=False)

    def entries(self, start: str, end: str, limit: int, reverse: bool = False) -> Command[list[Entry]]:
        """Read up to `limit` records between two ids, however large."""
        bounds = (end, start) if reverse else (start, end)
        words = (b"XREVRANGE" if reverse else b"XRANGE", self.keys.stream, *bounds, "COUNT", limit)
        return Command(self.keys.stream, words, _read_entries)


def _behind(after: str) -> str:
    """Return the bound that excludes everything up to an id; without an id, the beginning."""
    return f"({after}" if after else "-"


def _read_ids(reply: list[bytes]) -> list[str]:
    return list(map(decode_id, reply))


def _read_entries(reply: list[Any] | None) -> list[Entry]:
    return [(record_id.decode(), fields or None) for record_id, fields in reply or ()]


def _read_page(reply: list[Any]) -> Page:
    entries, more = reply
    return Page(_read_entries(entries), bool(more))


def _read_due(reply: list[Any]) -> DueRecords:
    ids, next_ms, seen = reply
    return DueRecords(list(map(decode_id, ids)), _ms_or_none(next_ms), seen.decode())


def _read_polled(reply: list[Any]) -> Polled:
    entries, next_ms, last, mark, *late = reply
    return Polled(_read_entries(entries), _ms_or_none(next_ms), last.decode(), mark.decode(), bool(late))


def _read_extent(reply: list[Any]) -> Extent:
    length, first, last, added, mark = reply
    known = known_mark(text_of(mark), first.decode(), None if added < 0 else added - length)
    return Extent(length, first.decode(), last.decode(), _ms_or_none(added), known)


def _ms_or_none(ms: int) -> int | None:
    return None if ms < 0 else ms


def _read_recreated(reply: list[Any]) -> Recreated:
    is_new, after, records = reply
    return Recreated(bool(is_new), after.decode(), records)


def _read_reclaimed(reply: list[Any]) -> ReclaimReply:
    after, records, deliveries, buried, ghosts, now_ms, grace_ms, mark = reply
    return ReclaimReply(
        after.decode(), _read_entries(records), deliveries, buried, ghosts, now_ms, grace_ms, mark.decode()
    )


def _read_redelivered(reply: list[Any]) -> Redelivered:
    records, deliveries, looked, *late = reply
    return Redelivered(_read_entries(records), deliveries, looked, bool(late))
