"""The table of the outbox for SQLAlchemy and Alembic."""

from __future__ import annotations

from delayq.model.extras import install
from delayq.outbox.statements import HELD, TABLE

try:
    from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text, text
except ImportError as error:
    raise ImportError(f"delayq.outbox needs SQLAlchemy 2: {install('outbox')}") from error

_HELD = text(f"state = '{HELD}'")
metadata = MetaData()
"""Holds the table alone: for ``metadata.create_all(…)``, or one of Alembic's ``target_metadata``."""

table = Table(
    TABLE,
    metadata,
    Column("seq", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
    Column("id", String(36), nullable=False),
    Column("transaction_id", BigInteger, nullable=False),
    Column("prefix", String(128), nullable=False),
    Column("queue", String(128), nullable=False),
    Column("message", LargeBinary, nullable=False),
    Column("options", Text, nullable=False),
    Column("created_ms", BigInteger, nullable=False),
    Column("state", String(8), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_ms", BigInteger, nullable=False),
    Column("sent_ms", BigInteger),
    Column("server", String(80)),
    Column("error", Text),
    Index(f"{TABLE}_state", "state", "seq"),
    Index(f"{TABLE}_transaction", "transaction_id", "prefix", "queue", "seq"),
    Index(f"{TABLE}_held", "prefix", "queue", "seq", postgresql_where=_HELD, sqlite_where=_HELD),
    sqlite_autoincrement=True,
)
