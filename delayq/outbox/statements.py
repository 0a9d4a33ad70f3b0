"""The statements on the table of an outbox, for PostgreSQL and SQLite.

They are written by hand, because SQLAlchemy's sessions, Django's connections and the relay's own all use them.
Parameters are written as ``:name``. The numbers of rows are put into the text: they are integers of the table itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

TABLE = "delayq_outbox"
CHANNEL = "delayq_outbox"
"""On which PostgreSQL notifies relays."""

NEW, HELD, SENT, REFUSED = "new", "held", "sent", "refused"
"""The states of a row: to be sent; to be sent once its queue accepts messages again; sent, but Redis may still lose it;
refused by Redis permanently."""

ROWS = 500
"""How many rows are locked at a time."""

FIRST = {"prefix": "", "queue": ""}
"""For `next_held`: before all queues."""

MOST_COUNTED = 10_000
"""How many rows of a state are counted, at most."""

_PARAMETER = re.compile(r":(\w+)")


def pyformat(statement: str) -> str:
    """Return a statement with parameters as ``%(name)s``."""
    return _PARAMETER.sub(r"%(\1)s", statement)


@dataclass(frozen=True)
class Statements:
    """The statements for one kind of database.

    Attributes:
        now: the time, ms since 1970.
        transaction: a number of the transaction that inserts a row.
        size: the function that returns the size of bytes.
        locking: locks rows of ``{}`` until the transaction ends, and leaves out those that are locked.
        by_held: lets a statement read held rows by their own index, whatever the planner counts.
        notify: the end of an insert that wakes relays.
        create: creates the table.
    """

    now: str
    transaction: str
    size: str
    locking: str
    by_held: str
    notify: str
    create: tuple[str, ...]

    def insert(self, notifies: bool = True) -> str:
        return (
            f"INSERT INTO {TABLE} (id, transaction_id, prefix, queue, message, options, created_ms, state, attempts, "
            f"due_ms) VALUES (:id, {self.transaction}, :prefix, :queue, :message, :options, {self.now}, '{NEW}', 0, 0)"
            f"{self.notify if notifies else ''}"
        )

    @property
    def heads(self) -> str:
        """Lock the first rows to send of the oldest transactions, one for each queue; it represents the others."""
        return self._heads(f"{_of('head', NEW)} AND head.due_ms <= {self.now}", f"= '{NEW}'")

    @property
    def held_heads(self) -> str:
        """The same for held rows of one queue."""
        return self._heads(
            f"head.state = '{HELD}' AND head.prefix = :prefix AND head.queue = :queue", f"IN ('{NEW}', '{HELD}')"
        )

    def _heads(self, wanted: str, earlier: str) -> str:
        return (
            f"SELECT head.seq FROM {TABLE} AS head WHERE {wanted} AND NOT EXISTS (SELECT 1 FROM {TABLE} AS earlier "
            f"WHERE {_SAME.format('earlier', 'head')} AND earlier.seq < head.seq AND earlier.state {earlier}) "
            f"ORDER BY head.state, head.seq LIMIT :most{self.locking.format('head')}"
        )

    def due(self, heads: Iterable[int] | None) -> str:
        """Lock the rows after `seq` to send: those that some heads represent, or all.

        It returns their numbers, sizes and queues. Whether rows of a queue are held is another statement's question,
        asked once for each queue: as a part of this one, it may cost a read of the table for each row.
        """
        return self._due(f"row.state = '{NEW}' AND row.due_ms <= {self.now}", heads)

    def held_due(self, heads: Iterable[int] | None) -> str:
        """The same for held rows of one queue."""
        return self._due(f"row.state = '{HELD}' AND row.prefix = :prefix AND row.queue = :queue", heads)

    def _due(self, wanted: str, heads: Iterable[int] | None) -> str:
        of, joined = "", ""
        if heads is not None:
            joined = f" JOIN {TABLE} AS head ON {_SAME.format('row', 'head')}"
            of = f"head.seq IN ({_numbers(heads)}) AND "
        return (
            f"SELECT row.seq, {self.size}(row.message), row.prefix, row.queue FROM {TABLE} AS row{joined} "
            f"WHERE {of}{wanted} AND row.seq > :seq ORDER BY row.seq LIMIT :most{self.locking.format('row')}"
        )

    @property
    def next_held(self) -> str:
        """The queue after a queue, by prefix and name, that has held rows; their first one, and when it is tried."""
        return self._first_held(">")

    @property
    def held_from(self) -> str:
        """The same for a queue or, if that has none, the next one: with ``=``, PostgreSQL may sort all held rows."""
        return self._first_held(">=")

    def _first_held(self, compared: str) -> str:
        return (
            f"SELECT prefix, queue, due_ms, error, seq FROM {TABLE}{self.by_held} WHERE state = '{HELD}' AND "
            f"(prefix, queue) {compared} (:prefix, :queue) ORDER BY prefix, queue, seq LIMIT 1"
        )

    def try_now(self, rows: Iterable[int]) -> str:
        """Let a queue be tried now, given its first held row."""
        return f"UPDATE {TABLE} SET due_ms = 0 WHERE seq IN ({_numbers(rows)}) AND state = '{HELD}' RETURNING seq"

    def read(self, rows: Iterable[int]) -> str:
        return (
            f"SELECT seq, id, prefix, queue, message, options, created_ms, attempts FROM {TABLE} WHERE "
            f"seq IN ({_numbers(rows)}) ORDER BY seq"
        )

    def delete(self, rows: Iterable[int]) -> str:
        return f"DELETE FROM {TABLE} WHERE seq IN ({_numbers(rows)})"

    def mark_sent(self, rows: Iterable[int]) -> str:
        return (
            f"UPDATE {TABLE} SET state = '{SENT}', sent_ms = {self.now}, server = :server, error = NULL WHERE seq IN "
            f"({_numbers(rows)})"
        )

    def postpone(self, rows: Iterable[int]) -> str:
        """Let rows that have failed alone wait; their queue's other rows do not."""
        return (
            f"UPDATE {TABLE} SET state = '{NEW}', attempts = attempts + 1, error = :error, due_ms = :due_ms WHERE seq "
            f"IN ({_numbers(rows)})"
        )

    def hold(self, rows: Iterable[int]) -> str:
        """Let rows wait until their queue accepts messages."""
        return f"UPDATE {TABLE} SET state = '{HELD}', error = :error, due_ms = :due_ms WHERE seq IN ({_numbers(rows)})"

    def refuse(self, rows: Iterable[int]) -> str:
        return (
            f"UPDATE {TABLE} SET state = '{REFUSED}', attempts = attempts + 1, error = :error WHERE seq IN "
            f"({_numbers(rows)})"
        )

    @property
    def queues_of_sent(self) -> str:
        return f"SELECT DISTINCT prefix, queue FROM {TABLE} WHERE state = '{SENT}'"

    def sent(self, is_on: str) -> str:
        """Lock sent rows of a queue; `is_on` is a condition on their server."""
        return (
            f"SELECT seq, id, options FROM {TABLE} AS row WHERE state = '{SENT}' AND prefix = :prefix AND "
            f"queue = :queue AND sent_ms <= :until AND {is_on} ORDER BY seq LIMIT :most{self.locking.format('row')}"
        )

    def send_again(self, rows: Iterable[int]) -> str:
        return f"UPDATE {TABLE} SET state = '{NEW}', due_ms = 0, server = NULL WHERE seq IN ({_numbers(rows)})"

    @property
    def counts(self) -> str:
        """For each state, the number of rows and the age of the oldest one; both of its first MOST_COUNTED rows."""
        return " UNION ALL ".join(
            f"SELECT '{state}', count(*), {self.now} - min(since_ms) FROM (SELECT {since} AS since_ms FROM {TABLE} "
            f"WHERE {_of(TABLE, state)} ORDER BY state, seq LIMIT {MOST_COUNTED}) AS first_{state}"
            for state, since in ((NEW, "created_ms"), (HELD, "created_ms"), (SENT, "sent_ms"), (REFUSED, "created_ms"))
        )

    @property
    def refused(self) -> str:
        return (
            f"SELECT id, prefix, queue, attempts, created_ms, error FROM {TABLE} WHERE state = '{REFUSED}' "
            "ORDER BY seq LIMIT :most"
        )

    @property
    def retry(self) -> str:
        """Send refused rows again: the one with an id, or all for ''."""
        return (
            f"UPDATE {TABLE} SET state = '{NEW}', attempts = 0, due_ms = 0 WHERE state = '{REFUSED}' AND (:id = '' OR "
            "id = :id) RETURNING id"
        )


_SAME = "{0}.transaction_id = {1}.transaction_id AND {0}.prefix = {1}.prefix AND {0}.queue = {1}.queue"
"""Rows of one transaction and one queue: their order is kept."""


def _of(alias: str, state: str) -> str:
    """The condition for a state that lets PostgreSQL read rows in the order of state and number by their index only.

    With ``=``, it may read the table in the order of its numbers, through all rows of other states before.
    """
    return f"{alias}.state BETWEEN '{state}' AND '{state}'"


def _numbers(rows: Iterable[int]) -> str:
    return ", ".join(str(int(row)) for row in rows)


def _table(seq: str, blob: str) -> tuple[str, ...]:
    columns = (
        f"seq {seq}",
        "id VARCHAR(36) NOT NULL",
        "transaction_id BIGINT NOT NULL",
        "prefix VARCHAR(128) NOT NULL",
        "queue VARCHAR(128) NOT NULL",
        f"message {blob} NOT NULL",
        "options TEXT NOT NULL",
        "created_ms BIGINT NOT NULL",
        "state VARCHAR(8) NOT NULL",
        "attempts INTEGER NOT NULL",
        "due_ms BIGINT NOT NULL",
        "sent_ms BIGINT",
        "server VARCHAR(80)",
        "error TEXT",
    )
    return (
        f"CREATE TABLE IF NOT EXISTS {TABLE} ({', '.join(columns)})",
        f"CREATE INDEX IF NOT EXISTS {TABLE}_state ON {TABLE} (state, seq)",
        f"CREATE INDEX IF NOT EXISTS {TABLE}_transaction ON {TABLE} (transaction_id, prefix, queue, seq)",
        f"CREATE INDEX IF NOT EXISTS {TABLE}_held ON {TABLE} (prefix, queue, seq) WHERE state = '{HELD}'",
    )


POSTGRESQL = Statements(
    now="CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
    transaction="txid_current()",
    size="octet_length",
    locking=" FOR UPDATE OF {} SKIP LOCKED",
    by_held="",
    notify=f" RETURNING pg_notify('{CHANNEL}', '')",
    create=_table("BIGSERIAL PRIMARY KEY", "BYTEA"),
)
SQLITE = Statements(
    now="CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    transaction="0",
    size="length",
    locking="",
    by_held=f" INDEXED BY {TABLE}_held",
    notify="",
    create=_table("INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "BLOB"),
)
BY_DIALECT = {"postgresql": POSTGRESQL, "sqlite": SQLITE}
