"""Held rows in masses cost the rows of other queues nothing, whatever the planner knows of the table."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from delayq import Outgoing, Queue, outbox
from delayq.outbox import open_database
from tests.harness.servers import RedisServer
from tests.outbox.conftest import Shop
from tests.outbox.test_relay import received, relaying, write

MANY = 30_000
LATER = 2**60


def hold_many(shop: Shop, number: int = MANY) -> None:
    """Let a queue have held rows, each of a transaction of its own; they are not tried for now."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :each)"
    with shop.engine.begin() as connection:
        seq = connection.scalar(sa.select(sa.func.max(outbox.table.c.seq)))
        connection.execute(
            sa.text(
                "INSERT INTO delayq_outbox (id, transaction_id, prefix, queue, message, options, created_ms, state, "
                f"attempts, due_ms) {numbers} SELECT id, -i, prefix, queue, message, options, created_ms, 'held', 0, "
                ":later FROM delayq_outbox CROSS JOIN n WHERE seq = :seq"
            ),
            {"each": number, "later": LATER, "seq": seq},
        )
        connection.execute(sa.text("DELETE FROM delayq_outbox WHERE seq = :seq"), {"seq": seq})


def analyze(shop: Shop) -> None:
    """As autovacuum does."""
    with shop.engine.begin() as connection:
        connection.execute(sa.text("ANALYZE delayq_outbox"))


def relay_in_time(shop: Shop, server: RedisServer) -> None:
    """Take turns whose statements may last two seconds each."""
    with relaying(shop, server) as relay:
        if shop.engine.dialect.name == "postgresql":
            relay._database.execute("SET statement_timeout = 2000")
        else:
            relay._database.execute("SELECT 1")
            steps = iter(range(5_000))  # of ten thousand: a read of all held rows for each row needs more
            connection = relay._database._connection  # type: ignore[attr-defined]
            connection.set_progress_handler(lambda: next(steps, None) is None, 10_000)
        while relay.turn():
            pass


@pytest.mark.parametrize("analyzed", ["never", "before", "after"])
@pytest.mark.parametrize("of", ["one transaction", "many transactions"])
def test_rows_of_another_queue_are_sent_in_time(shop: Shop, own_server: RedisServer, analyzed: str, of: str):
    with Queue("broken", url=own_server.url) as broken, Queue("emails", url=own_server.url) as emails:
        if analyzed == "before":
            write(shop, emails, 0)
            analyze(shop)
            with shop.engine.begin() as connection:
                connection.execute(sa.delete(outbox.table))
        write(shop, broken, "x")
        hold_many(shop)
        if of == "one transaction":
            with shop.engine.begin() as connection:
                outbox.send_many(connection, emails, [Outgoing(number) for number in range(1000)])
        else:
            for number in range(1000):
                write(shop, emails, number)
        if analyzed == "after":
            analyze(shop)
        relay_in_time(shop, own_server)
        assert received(emails) == list(range(1000))
    with shop.engine.connect() as connection:
        rows = connection.scalar(sa.select(sa.func.count()).where(outbox.table.c.state == "held"))
    assert rows == MANY


@pytest.mark.parametrize("is_analyzed", [False, True])
def test_held_queues_are_found_by_their_index(shop: Shop, is_analyzed: bool):
    write(shop, Queue("broken", url="redis://127.0.0.1:1"), "x")
    hold_many(shop)
    if is_analyzed:
        analyze(shop)
    database = open_database(shop.url)
    explain = "EXPLAIN QUERY PLAN" if shop.engine.dialect.name == "sqlite" else "EXPLAIN"
    for statement in database.statements.next_held, database.statements.held_from:
        plan = database.execute(f"{explain} {statement}", prefix="", queue="")
        text = " ".join(str(each) for each in plan)
        assert "delayq_outbox_held" in text
        assert "TEMP B-TREE" not in text
        assert "Sort" not in text
    database.close()
