"""relay: rows of an outbox are sent, listed, retried and counted; doctor judges the outbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from delayq import Queue, outbox
from tests.cli.conftest import Invoke
from tests.harness.servers import RedisServer


@pytest.fixture
def server(own_server: RedisServer) -> RedisServer:
    """A server that writes everything to its disk at once, so that no row waits."""
    return own_server


@pytest.fixture
def database(invoke: Invoke, tmp_path: Path) -> str:
    """The URL of a database with an empty outbox."""
    url = f"sqlite:///{tmp_path}/shop.db"
    assert invoke("relay", url, "--create-table").exit_code == 0
    return url


def write(database: str, queue: Queue, *payloads: Any, seconds_ago: int = 0) -> None:
    engine = sa.create_engine(database)
    with engine.begin() as connection:
        for each in payloads:
            outbox.send(connection, queue, each)
        earlier = outbox.table.c.created_ms - 1000 * seconds_ago
        connection.execute(sa.update(outbox.table).values(created_ms=earlier))
    engine.dispose()


def test_burst_sends_what_is_committed(invoke: Invoke, queue: Queue, database: str):
    write(database, queue, 1, 2)
    result = invoke("relay", database, "--burst")
    assert result.exit_code == 0, result.output
    assert result.stdout == "2 messages sent, 0 refused\n"
    assert [message.payload for message in queue.receive(max_messages=9)] == [1, 2]


def test_refused_rows_are_listed_and_sent_again(invoke: Invoke, queue: Queue, database: str):
    queue.configure(max_length=1)
    write(database, queue, 1, 2)
    invoke("relay", database, "--burst")
    result = invoke("relay", database, "--status")
    first, _, row = result.stdout.splitlines()
    assert first == "0 rows to send; 0 sent but not yet safe; 1 refused"
    assert "QueueFull: queue emails was full, with max_length 1" in row
    status = json.loads(invoke("relay", database, "--status", "--json").stdout)
    [refused] = status["rows"]
    assert invoke("doctor", "--outbox", database).exit_code == 1
    queue.ack(queue.receive())
    unknown = invoke("relay", database, "--retry", "unknown")
    assert (unknown.exit_code, "no refused row or held queue 'unknown'" in unknown.stderr) == (1, True)
    assert invoke("relay", database, "--retry", refused["id"]).stdout == "1 row to send again\n"
    invoke("relay", database, "--burst")
    assert [message.payload for message in queue.receive()] == [2]


def test_lag_is_a_metric_and_a_finding(invoke: Invoke, queue: Queue, database: str):
    assert "outbox: healthy, 0 rows to send" in invoke("doctor", "--outbox", database).stdout
    write(database, queue, 1, 2, seconds_ago=90)
    lines = invoke("relay", database, "--metrics").stdout.splitlines()
    assert 'delayq_outbox_rows{state="new"} 2' in lines
    [lag] = [float(line.split()[1]) for line in lines if line.startswith("delayq_outbox_lag_seconds ")]
    assert 90 <= lag < 200
    result = invoke("doctor", "--outbox", database)
    assert result.exit_code == 1
    assert "outbox: NOT healthy, 2 rows to send, the oldest for 1m 3" in result.stdout
    assert "no relay keeps up" in result.stdout
    assert json.loads(invoke("doctor", "--outbox", database, "--json").stdout)["healthy"] is False


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("mysql://root:secret@host/shop", "is not the URL of a database with an outbox"),
        ("shop.db", "is not the URL of a database with an outbox"),
        ("sqlite://", "a relay cannot reach an outbox in memory"),
        ("postgresql://user:secret@[host/x", "is not a URL of PostgreSQL"),
        ("postgresql://user:pa/secret@host/x", "has an @ behind its host"),
    ],
)
def test_other_urls_are_refused_without_their_passwords(invoke: Invoke, url: str, text: str):
    result = invoke("relay", url)
    assert result.exit_code == 2
    assert text in result.stderr
    assert "secret" not in result.output


def test_server_has_to_be_named(invoke: Invoke, queue: Queue, database: str):
    """Without it, rows would go into a new store in this folder."""
    write(database, queue, 1)
    result = invoke("relay", database, "--burst", env={"DELAYQ_URL": None})
    assert result.exit_code == 2
    assert "give the server of the queues with --url or DELAYQ_URL" in result.stderr
    assert "1 row to send" in invoke("relay", database, "--status").stdout


def test_held_rows_are_counted_and_named(invoke: Invoke, queue: Queue, database: str, server: RedisServer):
    write(database, queue, 1, 2, seconds_ago=90)
    with server.client() as client:
        client.set("delayq:{emails}:pending", "another program's")
    invoke("relay", database, "--burst")
    assert "2 rows to send, the oldest for 1m 3" in invoke("relay", database, "--status").stdout
    assert ", 2 of them held; 0 sent" in invoke("relay", database, "--status").stdout
    assert 'delayq_outbox_rows{state="held"} 2' in invoke("relay", database, "--metrics").stdout.splitlines()
    assert "queues refuse their rows: delayq relay --status says why" in invoke("doctor", "--outbox", database).stdout


def test_rows_that_are_held_for_a_moment_are_not_an_error(
    invoke: Invoke, queue: Queue, database: str, server: RedisServer
):
    write(database, queue, 1, 2)
    with server.client() as client:
        client.set("delayq:{emails}:pending", "another program's")
    invoke("relay", database, "--burst")
    said = invoke("doctor", "--outbox", database).stdout
    assert "outbox: healthy, 2 rows to send" in said
    assert "2 of them held" in said
    assert "queues refuse their rows" not in said


def test_held_queues_are_listed_and_tried_at_once(invoke: Invoke, queue: Queue, database: str, server: RedisServer):
    write(database, queue, 1, 2)
    write(database, Queue("others", url=server.url), 3)
    with server.client() as client:
        for each in "emails", "others":
            client.set(f"delayq:{{{each}}}:pending", "another program's")
    invoke("relay", database, "--burst")
    engine = sa.create_engine(database)
    with engine.begin() as connection:
        connection.execute(sa.update(outbox.table).values(due_ms=4_000_000_000_000))
    engine.dispose()
    summary, head, *rows = invoke("relay", database, "--status").stdout.splitlines()
    assert "3 of them held" in summary
    assert head.split() == ["prefix", "queue", "next", "try", "error"]
    assert [row.split()[:2] for row in rows] == [["delayq", "emails"], ["delayq", "others"]]
    assert all("KeyOverwritten: " in row for row in rows)
    found = json.loads(invoke("relay", database, "--status", "--json").stdout)["queues"]
    assert [(each["queue"], each["next_try"][:4]) for each in found] == [("emails", "2096"), ("others", "2096")]
    with server.client() as client:
        client.delete("delayq:{emails}:pending", "delayq:{others}:pending")
    assert invoke("relay", database, "--burst").stdout == "0 messages sent, 0 refused, 3 waiting\n"
    assert invoke("relay", database, "--retry", "emails").stdout == "0 rows to send again, 1 held queue to try now\n"
    assert invoke("relay", database, "--burst").stdout == "2 messages sent, 0 refused, 1 waiting\n"
    assert invoke("relay", database, "--retry", "all").stdout == "0 rows to send again, 1 held queue to try now\n"
    assert invoke("relay", database, "--burst").stdout == "1 message sent, 0 refused\n"


def test_burst_that_can_send_nothing_fails(invoke: Invoke, queue: Queue, database: str, server: RedisServer):
    write(database, queue, 1)
    with server.client() as client:
        client.set("delayq:{emails}:pending", "another program's")
    result = invoke("relay", database, "--burst")
    assert result.exit_code == 1
    assert "0 messages sent, 0 refused, 1 waiting" in result.stdout


def test_missing_table_is_an_error(invoke: Invoke, tmp_path: Path):
    result = invoke("relay", f"sqlite:///{tmp_path}/empty.db")
    assert result.exit_code == 1
    assert "the database: no such table: delayq_outbox" in result.stderr


def test_only_one_mode_is_given(invoke: Invoke):
    assert "give only one of --burst, --metrics" in invoke("relay", "sqlite:///x.db", "--burst", "--metrics").stderr
