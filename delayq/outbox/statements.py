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

NEW, SENT, REFUSED = "new", "sent", "refused"
"""The states of a row: to be sent; sent, but Redis may still lose it; refused by Redis permanently."""

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
        locking: locks rows until the transaction ends, and leaves out those that are locked.
        notify: the end of an insert.
        create: creates the table.
    """

    now: str
    transaction: str
    size: str
    locking: str
    notify: str
    create: tuple[str, ...]

    @property
    def insert(self) -> str:
        return (
            f"INSERT INTO {TABLE} (id, transaction_id, prefix, queue, message, options, created_ms, state, attempts, "
            f"due_ms) VALUES (:id, {self.transaction}, :prefix, :queue, :message, :options, {self.now}, '{NEW}', 0, 0)"
            f"{self.notify}"
        )

    @property
    def heads(self) -> str:
        """Lock the first row of each of the oldest transactions that have rows to send; the row represents it."""
        return (
            f"SELECT transaction_id FROM {TABLE} AS head WHERE state = '{NEW}' AND due_ms <= {self.now} AND NOT EXISTS "
            f"(SELECT 1 FROM {TABLE} AS earlier WHERE earlier.transaction_id = head.transaction_id AND earlier.seq < "
            f"head.seq AND earlier.state = '{NEW}') ORDER BY seq LIMIT :most{self.locking}"
        )

    def due(self, transactions: Iterable[int] | None) -> str:
        """Lock the rows after `seq` that are to be sent, of some or all transactions; return numbers and sizes."""
        of = "" if transactions is None else f" AND transaction_id IN ({_numbers(transactions)})"
        return (
            f"SELECT seq, {self.size}(message) FROM {TABLE} WHERE state = '{NEW}' AND due_ms <= {self.now} AND "
            f"seq > :seq{of} ORDER BY seq LIMIT :most{self.locking}"
        )

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
        return (
            f"UPDATE {TABLE} SET attempts = attempts + :failed, error = :error, due_ms = :due_ms WHERE seq IN "
            f"({_numbers(rows)})"
        )

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
            f"SELECT seq, id, options FROM {TABLE} WHERE state = '{SENT}' AND prefix = :prefix AND queue = :queue AND "
            f"sent_ms <= :until AND {is_on} ORDER BY seq LIMIT :most{self.locking}"
        )

    def send_again(self, rows: Iterable[int]) -> str:
        return f"UPDATE {TABLE} SET state = '{NEW}', due_ms = 0, server = NULL WHERE seq IN ({_numbers(rows)})"

    @property
    def counts(self) -> str:
        since = f"CASE state WHEN '{SENT}' THEN sent_ms ELSE created_ms END"
        return f"SELECT state, count(*), {self.now} - min({since}) FROM {TABLE} GROUP BY state"

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
        f"CREATE INDEX IF NOT EXISTS {TABLE}_transaction ON {TABLE} (transaction_id, seq)",
    )


POSTGRESQL = Statements(
    now="CAST(extract(epoch FROM clock_timestamp()) * 1000 AS bigint)",
    transaction="txid_current()",
    size="octet_length",
    locking=" FOR UPDATE SKIP LOCKED",
    notify=f" RETURNING pg_notify('{CHANNEL}', '')",
    create=_table("BIGSERIAL PRIMARY KEY", "BYTEA"),
)
SQLITE = Statements(
    now="CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    transaction="0",
    size="length",
    locking="",
    notify="",
    create=_table("INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT", "BLOB"),
)
BY_DIALECT = {"postgresql": POSTGRESQL, "sqlite": SQLITE}
