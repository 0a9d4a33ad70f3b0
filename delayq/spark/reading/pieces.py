"""Cutting a stream into pieces for tasks, and reading one of them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import TypeAlias

from pyspark.sql.datasource import InputPartition

from delayq.calls import Steps, expect, one
from delayq.connection import Connection
from delayq.topics.keys import TopicKeys
from delayq.topics.positions import order
from delayq.topics.scripts import MAX_RECORDS, Entry, TopicScripts

Trimmed: TypeAlias = Callable[[str], None]
"""Called with an id from which on entries have been trimmed before they were read."""

_COUNTER_BITS = 64


class Piece(InputPartition):
    """Entries of a shard that follow each other; the first and the last were there when it was cut."""

    def __init__(self, shard: int, stream: str, first: str, last: str) -> None:
        super().__init__(stream)
        self.shard = shard
        self.first = first
        self.last = last

    def pages(self, connection: Connection, trimmed: Trimmed) -> Iterator[list[Entry]]:
        """Yield the entries.

        Each page begins with the last entry of the one before. While that is there, no entry behind it has been
        trimmed: streams are trimmed from their beginning.
        """
        scripts = TopicScripts(TopicKeys(self.value))
        at, seen = self.first, 0
        while True:
            page = connection.do(one(scripts.entries(at, self.last, MAX_RECORDS)))
            if not page or page[0][0] != at:
                seen = 0
                first = connection.do(one(scripts.extent())).first
                if not first or number(first) > number(at):
                    trimmed(at)
            yield [entry for entry in page[seen:] if entry[1] is not None]
            if len(page) < MAX_RECORDS or page[-1][0] == self.last:
                return
            at, seen = page[-1][0], 1


def cut(scripts: TopicScripts, low: str, high: str, most: int) -> Steps[list[tuple[str, str]]]:
    """Cut what lies between two bounds of a range into at most `most` pieces; none when there is nothing.

    A stream cannot be asked for its middle entry. So the piece that spans the longest time is halved again and again;
    each ends where its entries do, and no piece is lost on times in which nothing was written.

    Returns:
        the first and the last id of each.
    """
    ends = yield [scripts.entries(low, high, 1), scripts.entries(low, high, 1, reverse=True)]
    first, last = map(expect, ends)
    if not first or not last:
        return []
    pieces = [_spanning(number(first[0][0]), number(last[0][0]))]
    while len(pieces) < most and pieces[0][0] < 0:
        _, begin, end = heapq.heappop(pieces)
        middle = (begin + end) // 2
        halves = yield [
            scripts.entries(id_of(begin), id_of(middle), 1, reverse=True),
            scripts.entries(id_of(middle + 1), id_of(end), 1),
        ]
        left, right = map(expect, halves)
        # One that was trimmed meanwhile stands for itself, so that it is missed by who reads the piece.
        heapq.heappush(pieces, _spanning(begin, number(left[0][0]) if left else begin))
        heapq.heappush(pieces, _spanning(number(right[0][0]) if right else end, end))
    return [(id_of(begin), id_of(end)) for _, begin, end in sorted(pieces, key=lambda piece: piece[1])]


def number(entry: str) -> int:
    """Return an id as a number; these lie as far from each other as the times do."""
    ms, counter = order(entry)
    return (ms << _COUNTER_BITS) + counter


def id_of(number: int) -> str:
    """Return the id of a number."""
    return f"{number >> _COUNTER_BITS}-{number & ((1 << _COUNTER_BITS) - 1)}"


def _spanning(begin: int, end: int) -> tuple[int, int, int]:
    return begin - end, begin, end
