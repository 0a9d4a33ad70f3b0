"""What a send into an outbox checks and writes; Redis is not there."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import uuid
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from delayq import InvalidInput, Outgoing, Queue, outbox
from delayq.aio import Queue as AsyncQueue
from delayq.errors import InvalidTime, PayloadNotSerializable, PayloadTooLarge
from delayq.outbox import Relay, open_database
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.outbox.conftest import Shop

NOWHERE = "redis://127.0.0.1:1"
queue = Queue("emails", url=NOWHERE)


@queue.task(max_retries=2)
def welcome(name: str) -> None: ...


def test_rollback_leaves_nothing_and_commit_leaves_all(shop: Shop):
    with Session(shop.engine) as session:
        outbox.send(session, queue, "dropped")
        session.rollback()
        outbox.send(session, queue, "kept")
        with session.begin_nested() as savepoint:
            outbox.send(session, queue, "dropped, too")
            savepoint.rollback()
        assert shop.rows == 0
        session.commit()
    assert shop.rows == 1


def test_ids_rise_and_are_those_of_rows_unless_chosen(shop: Shop):
    with shop.engine.begin() as connection:
        ids = outbox.send_many(connection, queue, [Outgoing(number) for number in range(500)])
        assert outbox.send(connection, queue, "x", id="order-42") == "order-42"
    assert ids == sorted(ids)
    assert {uuid.UUID(each).version for each in ids} == {7}
    assert len(set(ids)) == 500
    assert shop.rows == 501


@pytest.mark.parametrize(
    ("payload", "options", "error"),
    [
        (object(), {}, PayloadNotSerializable),
        (b"x" * 2_000_000, {}, PayloadTooLarge),
        ("x", {"delay": -1}, InvalidTime),
        ("x", {"at": dt.datetime(2030, 1, 1)}, InvalidTime),  # noqa: DTZ001  # naive
        ("x", {"delay": 5, "expires_in": 5}, InvalidTime),
        ("x", {"headers": {"delayq-task": "x"}}, InvalidInput),
        ("x", {"on_conflict": "error", "id": "x"}, InvalidInput),
        ("x", {"unique_for": 5, "id": "x"}, InvalidInput),
        ("x", {"wait_replicas": 1}, InvalidInput),
        ("x", {"dealy": 5}, TypeError),
    ],
)
def test_what_could_not_be_sent_is_refused_at_once(tmp_path: Path, payload: Any, options: Any, error: type[Exception]):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/x.db")  # without the table
    with engine.connect() as connection, pytest.raises(error):
        outbox.send(connection, queue, payload, **options)
    engine.dispose()


def test_other_objects_than_sessions_and_queues_are_refused(shop: Shop):
    with pytest.raises(InvalidInput, match="not a session"):
        outbox.send(shop.engine, queue, "x")  # type: ignore[call-overload]
    with shop.engine.connect() as connection, pytest.raises(InvalidInput, match="is not a queue"):
        outbox.send(connection, "emails", "x")  # type: ignore[call-overload]


def test_message_of_a_task_takes_further_options(shop: Shop):
    with Session(shop.engine) as session, session.begin():
        outbox.send(session, queue, welcome.message("Ann"), delay=3)
    with shop.engine.connect() as connection:
        row = connection.execute(sa.select(outbox.table)).one()
    assert b"welcome" in row.message
    assert '"due":"+3000"' in row.options


def test_middleware_of_the_queue_runs_around_it(shop: Shop):
    marked, seen = Queue("marked", url=NOWHERE), []

    @marked.middleware.before_send
    def mark(message: Outgoing) -> Outgoing:
        return Outgoing(message.payload, headers={"trace": "7"})

    @marked.middleware.after_send
    def see(_: Outgoing, sent: Any) -> None:
        seen.append(sent.id)

    with shop.engine.begin() as connection:
        assert seen == [outbox.send(connection, marked, "x")]
        message = connection.scalar(sa.select(outbox.table.c.message))
    assert b"trace" in (message or b"")


def test_scoped_sessions_are_sessions(shop: Shop):
    session = scoped_session(sessionmaker(shop.engine))
    outbox.send(session, queue, "x")
    session.commit()
    session.remove()
    assert shop.rows == 1


QUEUES = pytest.mark.parametrize("of", [queue, AsyncQueue("emails", url=NOWHERE)], ids=["queue", "aio"])


@QUEUES
def test_async_sessions_and_connections(shop: Shop, of: Any):
    """With aiosqlite and psycopg."""
    asyncio.run(write_async(shop.url.replace("sqlite://", "sqlite+aiosqlite://"), of))
    assert shop.rows == 3


@QUEUES
@pytest.mark.full
def test_async_sessions_and_connections_of_asyncpg(postgresql_shop: Shop, of: Any, own_server: RedisServer):
    asyncio.run(write_async(postgresql_shop.url.replace("+psycopg", "+asyncpg"), of))
    relay = Relay(open_database(postgresql_shop.url), own_server.url)
    relay.run(threading.Event(), burst=True)
    relay.close()
    with Queue("emails", url=own_server.url) as reader:
        assert [each.payload for each in reader.receive(9)] == ["kept", "kept, too", "in a connection"]
    assert postgresql_shop.rows == 0


async def write_async(url: str, of: Any) -> None:
    engine = create_async_engine(url)
    try:
        async with AsyncSession(engine) as session:
            await outbox.send(session, of, "dropped")
            await session.rollback()
            first = await outbox.send(session, of, "kept")
            second = await outbox.send_many(session, of, [Outgoing("kept, too")])
            assert [first, *second] == sorted([first, *second])
            await session.commit()
        async with engine.begin() as connection:
            await outbox.send(connection, of, "in a connection")
        with pytest.raises(InvalidInput):
            outbox.send(session, of, "x", delay=-1)  # without being awaited
    finally:
        await engine.dispose()


@pytest.mark.full
@pytest.mark.parametrize("driver", ["psycopg", "psycopg_async", "asyncpg"])
@pytest.mark.parametrize("notifies", [None, True, False])
def test_commit_notifies_unless_the_engine_says_otherwise(postgresql_shop: Shop, driver: str, notifies: bool | None):
    options = {} if notifies is None else {"delayq_outbox_notify": notifies}
    url = postgresql_shop.url.replace("+psycopg", f"+{driver}")
    with psycopg.connect(postgresql_shop.url.replace("+psycopg", ""), autocommit=True) as listener:
        listener.execute("LISTEN delayq_outbox")
        if driver == "psycopg":
            engine = sa.create_engine(url, execution_options=options)
            with Session(engine) as session, session.begin():
                outbox.send(session, queue, 1)
            engine.dispose()
        else:
            asyncio.run(write_one_async(url, options))
        assert bool(list(listener.notifies(timeout=0.5, stop_after=1))) is (notifies is not False)
    assert postgresql_shop.rows == 1


async def write_one_async(url: str, options: dict[str, Any]) -> None:
    engine = create_async_engine(url, execution_options=options)
    async with AsyncSession(engine) as session, session.begin():
        await outbox.send(session, queue, 1)
    await engine.dispose()


@pytest.mark.full
def test_relay_polls_for_rows_that_nobody_announced(postgresql_shop: Shop, own_server: RedisServer):
    relay, stop = Relay(open_database(postgresql_shop.url), own_server.url), threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    engine = postgresql_shop.engine.execution_options(delayq_outbox_notify=False)
    with engine.begin() as connection:
        outbox.send(connection, queue, 1)
    assert eventually(lambda: relay.moved == 1, 30)
    stop.set()
    thread.join()
    relay.close()
