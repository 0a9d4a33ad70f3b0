"""One typed method a script of topics: which keys it touches, what it is told, and how its reply reads.

The scripts' own headers, in ``lua/topics/``, say what each does, its units, its errors and its cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from delayq.calls import Call, Raw, as_is, id_of, script
from delayq.envelope import FORMAT
from delayq.topics.keys import TopicKeys

T = TypeVar("T")

MAX_RECORDS = 500
"""The most records that one call touches."""

MAX_LOOKED_AFTER = MAX_RECORDS // 2
"""The most of a call that looks each record up by itself."""

Entry = tuple[str, Sequence[bytes] | None]
"""A record's id and fields; None where the record is gone."""


class Ripe(NamedTuple):
    """What ripe tells.

    Attributes:
        ids: of the records that are due.
        next_ms: until the next one is; None when no other waits.
        seen: the id behind which the key is to be read that tells of an earlier one.
    """

    ids: list[str]
    next_ms: int | None
    seen: str


class Polled(NamedTuple):
    """What poll tells.

    Attributes:
        entries: that were handed out.
        next_ms: until a record that waits is to be appended; None when none waits.
        last: the id behind which the next record comes; "" when some were handed out.
    """

    entries: list[Entry]
    next_ms: int | None
    last: str


class Extent(NamedTuple):
    """From where to where a topic reaches.

    Attributes:
        length: the number of records.
        first: the id of the first one, "" when there is none.
        last: the last id that was given out; "0-0" before the first.
        added: how many records were ever appended; None where the server does not count them (Redis 6.2).
    """

    length: int
    first: str
    last: str
    added: int | None


class Rescued(NamedTuple):
    """What rescue has done: where it has stopped, '' at the end; the records, and the deliveries of each."""

    after: str
    records: list[Entry]
    deliveries: list[int]
    buried: int
    ghosts: int


class TopicScripts:
    """The calls of one shard of a topic.

    Args:
        keys: of the shard.
        clock: returns the time, ms, that delayed records are to go by, or '' for the server's own.
    """

    def __init__(self, keys: TopicKeys, clock: Callable[[], float | str] = str) -> None:
        self.keys = keys
        self._clock = clock

    def open(self, shards: int | None, create: bool) -> Call[list[int]]:
        return Call(
            self.keys.meta, (1, self.keys.meta, FORMAT, shards or "", 1 if create else ""), as_is, script("open")
        )

    def publish(self, records: Sequence[tuple[str, bytes]], max_length: int | None, exact: bool) -> Call[list[str]]:
        """Take records as pairs: id or "*", envelope."""
        words: list[Raw] = ["" if max_length is None else max_length, 1 if exact else ""]
        for record in records:
            words += record
        # Sent again, a record with an id of the server's would be there twice, and an own id be refused as too low.
        return self._call("publish", [self.keys.stream], words, _read_ids, repeats=False)

    def postpone(self, records: Sequence[tuple[str, Raw, bytes]]) -> Call[list[int]]:
        """Take records as triples: id, due time ('+delay_ms' or ms), envelope."""
        keys = [self.keys.pending, self.keys.waking, *(self.keys.record(each[0]) for each in records)]
        words: list[Raw] = [self._clock()]
        for record in records:
            words += record
        # Sent again, one that was appended meanwhile would come once more.
        return self._call("postpone", keys, words, as_is, repeats=False)

    def ripe(self, limit: int = MAX_RECORDS) -> Call[Ripe]:
        return self._call("ripe", [self.keys.pending, self.keys.waking], [self._clock(), limit], _read_ripe)

    def append(self, ids: Sequence[str], max_length: int | None = None, exact: bool = False) -> Call[list[str]]:
        keys = [self.keys.stream, self.keys.pending, *map(self.keys.record, ids)]
        cut: list[Raw] = ["" if max_length is None else max_length, 1 if exact else ""]
        return self._call("append", keys, [self._clock(), *cut, *ids], _read_named)

    def withdraw(self, record_id: str) -> Call[int]:
        keys = [self.keys.pending, self.keys.record(record_id)]
        return self._call("withdraw", keys, [record_id], int, repeats=False)

    def poll(self, group: str, consumer: str, limit: int, after: str = ">") -> Call[Polled]:
        words: list[Raw] = [self._clock(), group, consumer, limit, after]
        return self._call("poll", [self.keys.stream, self.keys.pending], words, _read_polled, repeats=after != ">")

    def ack(self, group: str, ids: Sequence[str]) -> Call[int]:
        return self._call("ack", [self.keys.stream, self.keys.failures(group)], [group, *ids], int)

    def rescue(
        self, group: str, consumer: str, idle_ms: int, after: str, limit: int, most: int | None
    ) -> Call[Rescued]:
        k = self.keys
        words: list[Raw] = [group, consumer, idle_ms, _behind(after), limit, "" if most is None else most]
        keys = [k.stream, k.buried(group), k.failures(group)]
        return self._call("rescue", keys, words, _read_rescued, repeats=False)

    def bury(self, group: str, consumer: str, record_id: str, reason: str, error: str = "") -> Call[int]:
        k = self.keys
        keys = [k.stream, k.buried(group), k.failures(group)]
        return self._call("bury", keys, [group, consumer, record_id, reason, error], int)

    def fail(self, group: str, consumer: str, record_id: str, error: str) -> Call[int]:
        keys = [self.keys.stream, self.keys.failures(group)]
        return self._call("fail", keys, [group, consumer, record_id, error], int, repeats=False)

    def retake(self, group: str, consumer: str, ids: Sequence[str], counts: bool) -> Call[list[tuple[Entry, int]]]:
        keys = [self.keys.stream, self.keys.failures(group)]
        words: list[Raw] = [group, consumer, "1" if counts else "", *ids]
        return self._call("retake", keys, words, _read_retaken, repeats=not counts)

    def hand_back(self, group: str, consumer: str, keeper: str, records: Sequence[tuple[str, bool]]) -> Call[list[int]]:
        """Take records as pairs: id, whether the last delivery was begun."""
        words: list[Raw] = [group, consumer, keeper]
        for record_id, begun in records:
            words += (record_id, "1" if begun else "")
        return self._call("hand_back", [self.keys.stream], words, as_is, repeats=False)

    def hold(self, group: str, consumer: str, ids: Sequence[str]) -> Call[list[int]]:
        return self._call("hold", [self.keys.stream], [group, consumer, *ids], as_is)

    def unacked(self, group: str, consumer: str, idle_ms: int, after: str, limit: int) -> Call[list[Any]]:
        words: list[Raw] = [group, consumer, idle_ms, _behind(after), limit]
        return self._call("unacked", [self.keys.stream], words, as_is)

    def hand_over(self, group: str, consumer: str, heir: str, limit: int = MAX_RECORDS) -> Call[list[int]]:
        return self._call("hand_over", [self.keys.stream], [group, consumer, heir, limit], as_is, repeats=False)

    def forget(self, group: str, idle_ms: int, names: str, limit: int = MAX_RECORDS) -> Call[int]:
        return self._call("forget", [self.keys.stream], [group, idle_ms, names, limit], int)

    def clear_ghosts(self, group: str, after: str, limit: int = MAX_RECORDS) -> Call[list[Any]]:
        keys = [self.keys.stream, self.keys.failures(group)]
        return self._call("clear_ghosts", keys, [group, _behind(after), limit], as_is)

    def make_group(self, group: str, start: str, move: bool = False) -> Call[int]:
        return self._call("make_group", [self.keys.stream], [group, start, 1 if move else ""], int)

    def destroy(self, group: str) -> Call[int]:
        k = self.keys
        return self._call("destroy", [k.stream, k.buried(group), k.failures(group)], [group], int, repeats=False)

    def groups(self, group: str = "") -> Call[list[Any]]:
        return self._call("groups", [self.keys.stream], [group], as_is)

    def behind(self, after: str, limit: int = 1000) -> Call[list[Any]]:
        return self._call("behind", [self.keys.stream], [after, limit], as_is)

    def extent(self) -> Call[Extent]:
        return self._call("extent", [self.keys.stream], [], _read_extent)

    def revive(self, group: str, consumer: str, ids: Sequence[str]) -> Call[list[int]]:
        keys = [self.keys.stream, self.keys.buried(group)]
        return self._call("revive", keys, [group, consumer, *ids], as_is, repeats=False)

    def trim(self, *words: Raw) -> Call[int]:
        """Drop records as the words of XTRIM behind the key say, a bounded number when they say ``~``."""
        return self._call("trim", [self.keys.stream], words, int)

    def trim_acked(self, limit: int = 10_000) -> Call[list[Any]]:
        return self._call("trim_acked", [self.keys.stream], [limit], as_is)

    def shrink(self, name: str, limit: int = 10_000) -> Call[list[int]]:
        return self._call("shrink", [self.keys.stream, self.keys.sizes], [name, limit], as_is, repeats=False)

    def length(self) -> Call[int]:
        """Count the records; a plain command, as are those below."""
        return Call(self.keys.stream, (b"XLEN", self.keys.stream), int)

    def delete(self, ids: Sequence[str]) -> Call[int]:
        """Delete single records; return how many were there."""
        return Call(self.keys.stream, (b"XDEL", self.keys.stream, *ids), int, repeats=False)

    def entries(self, start: str, end: str, limit: int, reverse: bool = False, stream: str = "") -> Call[list[Entry]]:
        """Read up to `limit` records between two ids, of the topic or of another of its streams."""
        key = stream or self.keys.stream
        bounds = (end, start) if reverse else (start, end)
        return Call(key, (b"XREVRANGE" if reverse else b"XRANGE", key, *bounds, "COUNT", limit), _read_entries)

    def _call(
        self,
        name: str,
        keys: Sequence[str],
        args: Sequence[Raw],
        read: Callable[[Any], T],
        repeats: bool = True,
    ) -> Call[T]:
        return Call(keys[0], (len(keys), *keys, *args), read, script(f"topics/{name}"), False, repeats)


def _behind(after: str) -> str:
    """Return the bound that leaves out all up to an id; without one, that of the beginning."""
    return f"({after}" if after else "-"


def _read_ids(reply: list[bytes]) -> list[str]:
    return [each.decode() for each in reply]


def _read_named(reply: list[bytes]) -> list[str]:
    return list(map(id_of, reply))


def _read_entries(reply: list[Any] | None) -> list[Entry]:
    return [(record_id.decode(), fields or None) for record_id, fields in reply or ()]


def _read_ripe(reply: list[Any]) -> Ripe:
    ids, next_ms, seen = reply
    return Ripe(list(map(id_of, ids)), _ms_or_none(next_ms), seen.decode())


def _read_polled(reply: list[Any]) -> Polled:
    entries, next_ms, last = reply
    return Polled(_read_entries(entries), _ms_or_none(next_ms), last.decode())


def _read_extent(reply: list[Any]) -> Extent:
    length, first, last, added = reply
    return Extent(length, first.decode(), last.decode(), _ms_or_none(added))


def _ms_or_none(ms: int) -> int | None:
    return None if ms < 0 else ms


def _read_rescued(reply: list[Any]) -> Rescued:
    after, records, deliveries, buried, ghosts = reply
    return Rescued(after.decode(), _read_entries(records), deliveries, buried, ghosts)


def _read_retaken(reply: list[Any]) -> list[tuple[Entry, int]]:
    return list(zip(_read_entries(reply[0]), reply[1], strict=True))
