"""Walk over a state in pages, while messages come and go."""

from __future__ import annotations

import math
from typing import TypeAlias

from delayq.model.placement import State
from delayq.protocol.operation import Operation, execute
from delayq.protocol.queue_commands import MAX_IDS, QueueCommands

Row: TypeAlias = tuple[str, bytes]
"""An id and its score."""


Place: TypeAlias = tuple[float, bytes]
"""By what Redis sorts a member of a sorted set: its score and, among equal ones, itself."""


BEGINNING: Place = (-math.inf, b"")
"""The place in front of all members."""


class Walk:
    """Reads by rank: to go on behind a score would cost more with each message that shares it.

    Messages that come and go in front move the others. So each page begins with the last message of the one before;
    when that is no longer there, the page begins further in front, and what was looked at is left out.

    Args:
        size: the most new rows of a page, but for one more on the first.
        rank: where to begin, if not with the lowest score: no later than with the first one behind `behind`.
        behind: leave out what is not behind this place.

    Attributes:
        ended: whether there is nothing behind what was returned; who has seen enough may set it.
    """

    def __init__(
        self, scripts: QueueCommands, state: State, size: int, rank: int = 0, behind: Place = BEGINNING
    ) -> None:
        self._scripts = scripts
        self._state: State = state
        self._size = self._back = size
        self._rank = rank
        self._seen = behind
        self.ended = False

    def page(self, most: int = MAX_IDS) -> Operation[list[Row]]:
        """Return the next rows, at most so many, lowest score first; none at the end."""
        while not self.ended:
            rows = yield from execute(self._scripts.ranked_page(self._state, self._size + 1, self._rank))
            if self._rank and (not rows or place(rows[0]) > self._seen):
                self._rank, self._back = max(0, self._rank - self._back), self._back * 2
                continue
            new = [row for row in rows if place(row) > self._seen]
            self.ended = len(rows) <= self._size and len(new) <= most
            self._rank += max(0, len(rows) - 1)
            if new := new[:most]:
                self._seen, self._back = place(new[-1]), self._size
                return new
        return []

    def removed(self, count: int) -> None:
        """Tell that so many of the rows that were returned have been taken away: the others have moved up."""
        self._rank = max(0, self._rank - count)


def place(row: Row) -> Place:
    """Return where a row stands."""
    message_id, score = row
    return float(score), message_id.encode(errors="surrogateescape")
