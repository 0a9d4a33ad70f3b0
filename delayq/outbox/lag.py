"""What waits in an outbox, and which queues refuse their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from delayq.outbox.database import Database
from delayq.outbox.statements import FIRST, HELD, NEW, REFUSED, SENT


class Lag(NamedTuple):
    """What waits in an outbox.

    Attributes:
        new, held, sent, refused: rows by state: to be sent; to be sent once their queues accept messages again; sent,
            but Redis may still lose them; refused permanently. A state with more rows has MOST_COUNTED, 10,000.
        seconds: since the insert of the oldest row to be sent; 0 if there is none.
        sent_seconds: since the send of the oldest row that is sent; of the first 10,000, if there are more.
    """

    new: int
    held: int
    sent: int
    refused: int
    seconds: float
    sent_seconds: float

    @property
    def unsent(self) -> int:
        """Rows to be sent."""
        return self.new + self.held


def lag(database: Database) -> Lag:
    """Return what waits in an outbox.

    It reads at most 10,000 rows of each state, by an index, however many there are: a few milliseconds. PostgreSQL uses
    the index once autovacuum has analyzed the table.
    """
    found = {state: (count, age or 0) for state, count, age in database.execute(database.statements.counts)}
    new, held, sent, refused = (found[state] for state in (NEW, HELD, SENT, REFUSED))
    seconds, sent_seconds = (max(0, age) / 1000 for age in (max(new[1], held[1]), sent[1]))
    return Lag(new[0], held[0], sent[0], refused[0], seconds, sent_seconds)


class HeldQueue(NamedTuple):
    """A queue with held rows.

    Attributes:
        due_ms: when its rows are tried, by the database's clock.
        error: why its first row is held.
        seq: the number of that row.
    """

    prefix: str
    queue: str
    due_ms: int
    error: str | None
    seq: int


def held_queues(database: Database) -> Iterator[HeldQueue]:
    """Yield the queues that have held rows, by prefix and name: with one look at an index for each."""
    after = FIRST
    while found := database.execute(database.statements.next_held, **after):
        held = HeldQueue(*found[0])
        yield held
        after = {"prefix": held.prefix, "queue": held.queue}
