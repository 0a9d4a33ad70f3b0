"""Walk over a state in pages, while messages come and go."""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TypeAlias

from delayq.model.placement import Row, State
from delayq.protocol.operation import Operation, unwrap
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands

Place: TypeAlias = tuple[float, bytes]
"""The order of a sorted set in Redis: by score and, among equal scores, by member."""


BEGINNING: Place = (-math.inf, b"")
"""The place before all members."""


class Walk:
    """Reads by rank, as continuing after a score would cost more with each message that shares it.

    Earlier messages that come and go move the others. So each page begins with the last message of the page before. If
    that message is gone, the page begins earlier, and rows already seen are left out.

    Args:
        size: the most new rows of a page; the first page may have one more.
        rank: where to begin, if not with the lowest score; at or before the first row after `behind`.
        behind: leave out rows up to this place.
        up_to: the last place to return; None for the end.
        sized: ask for the sizes of envelopes.

    Attributes:
        ended: whether there is nothing left; a caller that has seen enough may set it.
        are_small: with `sized`, whether the rows of the last page have envelopes of at most `LARGE_BYTES`, as no larger
            one was ever stored. It is asked after the rows, so only a message that is replaced later can have one.
    """

    def __init__(
        self,
        scripts: QueueCommands,
        state: State,
        size: int,
        rank: int = 0,
        behind: Place = BEGINNING,
        up_to: Place | None = None,
        sized: bool = False,
    ) -> None:
        self._scripts = scripts
        self._state: State = state
        self._size = self._back = size
        self._rank = rank
        self._seen = behind
        self._up_to = up_to
        self.ended = False
        self._sized = sized
        self.are_small = False

    def step(self, _: object) -> Operation[list[Row]]:
        """Return the next rows, for `Queue.execute`."""
        return (yield from self.page())

    def page(self, most: int = MAX_IDS) -> Operation[list[Row]]:
        """Return up to `most` next rows, lowest score first; none at the end."""
        while not self.ended:
            paging = self._scripts.ranked_page(self._state, self._size + 1, self._rank)
            replies = yield [paging, self._scripts.are_small()] if self._sized else [paging]
            rows: list[Row] = unwrap(replies[0])
            self.are_small = replies[1:] == [True]
            if self._rank and (not rows or place(rows[0]) > self._seen):
                self._rank, self._back = max(0, self._rank - self._back), self._back * 2
                continue
            new = rows[bisect_right(rows, self._seen, key=place) :]
            is_last = len(rows) <= self._size
            if new and self._up_to is not None and place(new[-1]) > self._up_to:
                new, is_last = new[: bisect_right(new, self._up_to, key=place)], True
            self.ended = is_last and len(new) <= most
            self._rank += max(0, len(rows) - 1)
            if new := new[:most]:
                self._seen, self._back = place(new[-1]), self._size
                return new
        return []

    def removed(self, count: int) -> None:
        """Note that `count` of the returned rows were removed, so that the others have moved up."""
        self._rank = max(0, self._rank - count)


def place(row: Row) -> Place:
    """Return the place of a row."""
    message_id, score = row
    return float(score), message_id.encode(errors="surrogateescape")
