"""What waits is counted at a cost that does not grow with the outbox."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import sqlalchemy as sa

from delayq import Queue, outbox
from delayq.outbox import open_database
from delayq.outbox.lag import lag
from delayq.outbox.statements import MOST_COUNTED, SQLITE
from tests.outbox.conftest import Shop

EACH = 100_000
STATES = ("new", "held", "sent", "refused")


@pytest.fixture
def large(shop: Shop) -> Shop:
    """An outbox with 100,000 rows of each state."""
    numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :each)"
    if shop.engine.dialect.name == "postgresql":
        numbers = "WITH n(i) AS (SELECT * FROM generate_series(1, :each))"
    with shop.engine.begin() as connection:
        write_one(connection)
        for state in STATES:
            connection.execute(
                sa.text(
                    f"INSERT INTO delayq_outbox (id, transaction_id, prefix, queue, message, options, created_ms, "
                    f"state, attempts, due_ms, sent_ms) {numbers} SELECT id, transaction_id, prefix, queue, message, "
                    f"options, created_ms, '{state}', 0, 0, created_ms FROM delayq_outbox CROSS JOIN n WHERE seq = 1"
                ),
                {"each": EACH},
            )
        connection.execute(sa.text("DELETE FROM delayq_outbox WHERE seq = 1"))
        connection.execute(sa.text("ANALYZE delayq_outbox"))  # as autovacuum does
    return shop


def write_one(connection: sa.Connection) -> None:
    outbox.send(connection, Queue("emails", url="redis://127.0.0.1:1"), "x" * 100)


def test_each_state_is_counted_to_a_limit(large: Shop):
    database = open_database(large.url)
    found = lag(database)
    database.close()
    assert found[:4] == (MOST_COUNTED,) * 4
    assert found.seconds > 0
    assert found.sent_seconds > 0


def test_plan_reads_an_index_up_to_the_limit(large: Shop):
    """SQLite's plan has no numbers; PostgreSQL's are those of a run."""
    with large.engine.connect() as connection:
        if large.engine.dialect.name == "sqlite":
            plan = connection.execute(sa.text(f"EXPLAIN QUERY PLAN {SQLITE.counts}")).all()
            details = [row[3] for row in plan if "delayq_outbox" in row[3]]
            assert len(details) == 4
            assert all("USING INDEX delayq_outbox_state (state>? AND state<?)" in each for each in details)
            assert "LIMIT" in SQLITE.counts
            return
        database = open_database(large.url)
        [(made,)] = connection.execute(sa.text(f"EXPLAIN (ANALYZE, FORMAT JSON) {database.statements.counts}")).all()
        database.close()
    scans = list(nodes(made[0]["Plan"] if isinstance(made, list) else json.loads(made)[0]["Plan"]))
    assert len(scans) == 4
    for scan in scans:
        assert scan["Node Type"].startswith("Index")
        assert scan["Actual Rows"] <= MOST_COUNTED
        assert scan.get("Rows Removed by Filter", 0) == 0


def nodes(plan: dict[str, Any]) -> Any:
    """Yield the scans of the table."""
    if plan.get("Relation Name") == "delayq_outbox":
        yield plan
    for each in plan.get("Plans", ()):
        yield from nodes(each)


def test_work_does_not_grow_with_the_rows(large: Shop):
    """Ten times as many rows as are counted cost no more steps of SQLite's machine, or blocks of PostgreSQL's."""
    many = cost(large)
    with large.engine.begin() as connection:
        connection.execute(
            sa.text("DELETE FROM delayq_outbox WHERE seq IN (SELECT seq FROM (SELECT seq, row_number() OVER "
                    "(PARTITION BY state ORDER BY seq) AS place FROM delayq_outbox) AS p WHERE place > :most)"),
            {"most": MOST_COUNTED},
        )  # fmt: skip
    assert many <= cost(large) * 1.2


def cost(shop: Shop) -> int:
    if shop.engine.dialect.name == "sqlite":
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        database: Any = open_database(shop.url)
        database.execute("SELECT 1")
        database._connection.set_progress_handler(count, 100)
        lag(database)
        database.close()
        return steps
    with shop.engine.connect() as connection:
        counts = open_database(shop.url).statements.counts
        lines = connection.scalars(sa.text(f"EXPLAIN (ANALYZE, BUFFERS) {counts}")).all()
    return sum(int(each) for line in lines[:3] for each in re.findall(r"(?:hit|read)=(\d+)", line)[:2])
