"""Walk over a state in pages, while messages come and go."""

from __future__ import annotations

import math
from typing import TypeAlias

from delayq.model.placement import Row, State
from delayq.protocol.operation import Operation, execute
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

    Attributes:
        ended: whether there is nothing left; a caller that has seen enough may set it.
    """

    def __init__(
        self,
        scripts: QueueCommands,
        state: State,
        size: int,
        rank: int = 0,
        behind: Place = BEGINNING,
        up_to: Place | None = None,
    ) -> None:
        self._scripts = scripts
        self._state: State = state
        self._size = self._back = size
        self._rank = rank
        self._seen = behind
        self._up_to = up_to
        self.ended = False

    def step(self, _: object) -> Operation[list[Row]]:
        """Return the next rows, for `Queue.execute`."""
        return (yield from self.page())

    def page(self, most: int = MAX_IDS) -> Operation[list[Row]]:
        """Return up to `most` next rows, lowest score first; none at the end."""
        while not self.ended:
            rows = yield from execute(self._scripts.ranked_page(self._state, self._size + 1, self._rank))
            if self._rank and (not rows or place(rows[0]) > self._seen):
                self._rank, self._back = max(0, self._rank - self._back), self._back * 2
                continue
            new = [row for row in rows if place(row) > self._seen]
            is_last = len(rows) <= self._size
            if new and self._up_to is not None and place(new[-1]) > self._up_to:
                new, is_last = [row for row in new if place(row) <= self._up_to], True
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
