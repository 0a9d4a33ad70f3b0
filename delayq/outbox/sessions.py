"""Sending into the outbox with SQLAlchemy 2: sessions and connections, sync and async."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, TypeAlias, overload

from delayq.aio.queue import Queue as AsyncQueue
from delayq.errors import InvalidInput
from delayq.model.delivery import Outgoing
from delayq.model.extras import install
from delayq.outbox.rows import message_of, operations, rows
from delayq.outbox.statements import BY_DIALECT
from delayq.queue import Queue

try:
    from sqlalchemy import Connection, text
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session
    from sqlalchemy.orm import Session, scoped_session
except ImportError as error:
    raise ImportError(f"delayq.outbox needs SQLAlchemy 2: {install('outbox')}") from error

NOTIFY = "delayq_outbox_notify"
"""An execution option of SQLAlchemy, of an engine or a connection: False lets relays of PostgreSQL poll."""

SyncSession: TypeAlias = "Session | scoped_session[Any] | Connection"
AnyAsyncSession: TypeAlias = "AsyncSession | async_scoped_session[Any] | AsyncConnection"
AnyQueue: TypeAlias = Queue | AsyncQueue


@overload
def send(session: SyncSession, queue: AnyQueue, payload: Any, **options: Any) -> str: ...


@overload
def send(session: AnyAsyncSession, queue: AnyQueue, payload: Any, **options: Any) -> Awaitable[str]: ...


def send(session: Any, queue: AnyQueue, payload: Any, **options: Any) -> Any:
    """Write a message into the outbox, in the session's transaction: it is sent if that commits, and only then.

    Everything is checked at once, as `Queue.send` does; Redis is not asked.

    Args:
        session: a Session or Connection of SQLAlchemy 2. With an AsyncSession or AsyncConnection, await the result. On
            PostgreSQL, the commit wakes the relays, unless the execution option ``delayq_outbox_notify`` is False.
        queue: of either API.
        payload: as for `Queue.send`; or an `Outgoing`, such as ``task.message(…)``.
        options: those of `Outgoing`, but `on_conflict` and `unique_for`. `delay` and `expires_in` count from now.

    Returns:
        the id of the message.

    Raises:
        InvalidInput: an argument is out of range; nothing was written.
    """
    messages = [message_of(payload, options)]
    written = _write(session, rows(queue, messages, is_batch=False))
    return written[0] if isinstance(written, list) else _first(written)


@overload
def send_many(session: SyncSession, queue: AnyQueue, messages: Iterable[Outgoing]) -> list[str]: ...


@overload
def send_many(session: AnyAsyncSession, queue: AnyQueue, messages: Iterable[Outgoing]) -> Awaitable[list[str]]: ...


def send_many(session: Any, queue: AnyQueue, messages: Iterable[Outgoing]) -> Any:
    """Write messages into the outbox with one call of the driver, else as `send`; the ids are in the same order."""
    return _write(session, rows(queue, messages, is_batch=True))


def _write(session: Any, made: Sequence[operations.Row]) -> list[str] | Awaitable[list[str]]:
    values = [row._asdict() for row in made]
    ids = [row.message_id for row in made]
    if isinstance(session, AsyncSession | async_scoped_session | AsyncConnection):
        return _write_async(session, values, ids)
    if not isinstance(session, Session | scoped_session | Connection):
        raise InvalidInput(f"{session!r} is not a session of SQLAlchemy 2: give a Session, AsyncSession or connection")
    connection = session if isinstance(session, Connection) else session.connection()
    if values:
        connection.execute(_insert(connection), values)
    return ids


async def _write_async(session: Any, values: list[dict[str, Any]], ids: list[str]) -> list[str]:
    connection = session if isinstance(session, AsyncConnection) else await session.connection()
    if values:
        await connection.run_sync(lambda each: each.execute(_insert(each), values))
    return ids


async def _first(written: Awaitable[list[str]]) -> str:
    return (await written)[0]


def _insert(connection: Any) -> Any:
    statements = BY_DIALECT.get(connection.dialect.name)
    if statements is None:
        raise InvalidInput(f"the outbox works with PostgreSQL and SQLite, not with {connection.dialect.name}")
    return text(statements.insert(connection.get_execution_options().get(NOTIFY, True)))
