"""The outbox in a database of Django: tasks are written with its connection, and the relay has one of its own."""

from __future__ import annotations

from django.db import connections

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.outbox.database import KEEPALIVE, SCHEMES, Database, PostgreSQL, SQLite
from delayq.outbox.rows import rows
from delayq.outbox.statements import BY_DIALECT, pyformat


def write(alias: str, queue: Queue, message: Outgoing, notifies: bool) -> None:
    """Write a message into the outbox of a database, in its transaction if one is open.

    Args:
        notifies: whether the commit wakes relays of PostgreSQL.
    """
    connection = connections[alias]
    [row] = rows(queue, [message], is_batch=False)
    with connection.cursor() as cursor:
        cursor.execute(pyformat(BY_DIALECT[connection.vendor].insert(notifies)), row._asdict())


def url_of(alias: str) -> str:
    """Return the URL by which ``delayq relay`` and ``delayq doctor`` find a database, in a process with Django."""
    return f"django://{alias}"


def _opened(alias: str) -> Database:
    connection = connections[alias]
    if connection.vendor == "sqlite":
        return SQLite(f"/{connection.settings_dict['NAME']}")
    if connection.vendor != "postgresql":
        raise InvalidInput(f"the outbox works with PostgreSQL and SQLite, not with {connection.vendor}")
    # Not by get_new_connection, which would take it from the site's pool.
    return PostgreSQL("", lambda: connection.Database.connect(**KEEPALIVE | connection.get_connection_params()))


SCHEMES["django"] = _opened
