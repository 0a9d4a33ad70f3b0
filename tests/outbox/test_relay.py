"""The relay: each committed row becomes one message, in order, and is deleted once that is safe."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from delayq import DelayqError, InvalidInput, LoginRefused, Outgoing, Queue, ServerError, ServerUnreachable, outbox
from delayq.errors import InvalidURL
from delayq.log import log
from delayq.operations import outbox as operations
from delayq.outbox import Relay, clock_difference, open_database
from delayq.outbox import relay as relay_module
from delayq.outbox.lag import lag
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.topologies import follow
from tests.harness.waiting import eventually
from tests.outbox.conftest import Shop, made

NOWHERE = Queue("emails", url="redis://127.0.0.1:1")


@contextmanager
def relaying(shop: Shop, server: RedisServer, **options: Any) -> Iterator[Relay]:
    relay = Relay(open_database(shop.url), server.url, **options)
    try:
        yield relay
    finally:
        relay.close()


def burst(shop: Shop, server: RedisServer, **options: Any) -> Relay:
    """Relay until nothing is left."""
    with relaying(shop, server, **options) as relay:
        relay.run(threading.Event(), burst=True)
    return relay


def write(shop: Shop, queue: Queue, *payloads: Any, **options: Any) -> list[str]:
    """Write messages in one transaction."""
    with shop.engine.begin() as connection:
        return [outbox.send(connection, queue, payload, **options) for payload in payloads]


def received(queue: Queue) -> list[Any]:
    """Take and ack what is due, in order."""
    found = []
    while messages := queue.receive(max_messages=100):
        found += [message.payload for message in messages]
        queue.ack(messages)
    return found


def due_now(shop: Shop) -> None:
    """Let postponed rows wait no more."""
    with shop.engine.begin() as connection:
        connection.execute(sa.update(outbox.table).values(due_ms=0))


def reservations(server: RedisServer) -> list[int]:
    """The times that reservations have left, ms."""
    with server.client() as client:
        return [client.pttl(key) for key in client.keys("*:unique:*")]


def test_committed_rows_become_messages_in_their_order(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue, Queue("others", url=own_server.url) as others:
        first = write(shop, queue, *range(250))
        with shop.engine.connect() as connection:
            outbox.send(connection, queue, "rolled back")
            connection.rollback()
        write(shop, others, b"raw")
        write(shop, queue, *range(250, 300))
        relay = burst(shop, own_server)
        assert relay.moved == 301
        assert queue.get(first[0]).payload == 0  # type: ignore[union-attr]
        assert received(queue) == list(range(300))
        assert received(others) == [b"raw"]
    assert shop.rows == 0


def test_options_arrive_and_times_count_from_the_insert(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url, max_retries=3) as queue:
        (late,) = write(shop, queue, "late", delay=600, expires_in=900, headers={"a": 1}, timeout=5)
        (task,) = write(shop, queue, {"x": 1}, task="add", results=60, max_retries=0)
        (early,) = write(shop, queue, "early", delay=5)
        with shop.engine.begin() as connection:  # as if the relay had been away for a minute
            connection.execute(sa.update(outbox.table).values(created_ms=outbox.table.c.created_ms - 60_000))
        before = time.time()
        burst(shop, own_server)
        took = time.time() - before
        info = queue.get(late)
        assert info is not None
        assert info.due_at is not None
        assert info.expires_at is not None
        assert -1 < before + 540 - info.due_at.timestamp() < took + 1
        assert -1 < before + 840 - info.expires_at.timestamp() < took + 1
        assert (info.max_retries, info.headers) == (3, {"a": 1})
        assert (queue.get(task).max_retries, queue.get(task).task) == (0, "add")  # type: ignore[union-attr]
        assert "has been due since" in queue.why(early)


def test_stored_number_of_retries_is_read_by_the_relay(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        (id,) = write(shop, queue, "x")
        queue.configure(max_retries=9)
        burst(shop, own_server)
        assert queue.get(id).max_retries == 9  # type: ignore[union-attr]


def test_chosen_id_that_exists_is_left_and_its_row_is_done(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        queue.send("first", id="order-42")
        write(shop, queue, "second", id="order-42")
        burst(shop, own_server)
        assert received(queue) == ["first"]
    assert shop.rows == 0


def test_row_whose_deletion_fails_is_not_sent_again(shop: Shop, own_server: RedisServer):
    """The message has been acked meanwhile, so that its id is free: the reservation holds."""
    with Queue("emails", url=own_server.url) as queue, relaying(shop, own_server) as relay:
        write(shop, queue, "one", "two")
        write(shop, queue, "chosen", id="order-42")

        class Lost(Exception):
            pass

        def lose(_: object) -> str:
            raise Lost

        class Losing:
            delete = staticmethod(lose)

            def __getattr__(self, name: str) -> Any:
                return getattr(real, name)

        real, relay._statements = relay._statements, Losing()  # type: ignore[assignment]
        with pytest.raises(Lost):
            relay.turn()
        assert received(queue) == ["one", "two", "chosen"]
        assert shop.states == ["new"] * 3
        assert min(reservations(own_server)) > operations.RELEASED_MS
        relay._statements = real
        relay.turn()
        assert received(queue) == []
    assert shop.rows == 0
    assert max(reservations(own_server)) <= operations.RELEASED_MS


def test_row_stays_until_its_message_is_on_the_disk(shop: Shop, start_server: StartServer):
    """With appendfsync everysec: WAITAOF says when."""
    server = start_server(appendonly=True, config={"appendfsync": "everysec"})
    with Queue("emails", url=server.url) as queue, relaying(shop, server) as relay:
        write(shop, queue, "x")
        relay._sweep_at = math.inf
        relay.turn()
        assert shop.states == ["sent"]
        assert len(received(queue)) == 1
        relay._sweep.run()
        assert shop.rows == 0
        assert received(queue) == []


@pytest.mark.parametrize("how", ["kill", "flush"])
def test_message_that_the_server_has_lost_is_sent_again(shop: Shop, start_server: StartServer, how: str):
    server = start_server()
    with Queue("emails", url=server.url) as queue, relaying(shop, server, settle_seconds=1000) as relay:
        write(shop, queue, 1, 2, 3)
        relay.turn()
        assert shop.states == ["sent"] * 3
        if how == "kill":
            server.kill()
            server.start()
        else:
            server.flush()
        with Queue("emails", url=server.url) as fresh:
            assert fresh.stats().pending + fresh.stats().ready == 0
        relay._sweep.run()
        assert shop.states == ["new"] * 3
        relay.turn()
        with Queue("emails", url=server.url) as fresh:
            assert received(fresh) == [1, 2, 3]


def test_restart_that_has_lost_nothing_doubles_nothing(shop: Shop, start_server: StartServer):
    server = start_server(appendonly=True, config={"no-appendfsync-on-rewrite": "yes"})
    with Queue("emails", url=server.url) as queue, relaying(shop, server, settle_seconds=1000) as relay:
        write(shop, queue, 1, 2, 3)
        relay._sweep_at = math.inf
        relay.turn()
        assert received(queue) == [1, 2, 3]
        assert shop.states == ["sent"] * 3
        server.restart()
        relay._sweep.run()
        relay.turn()
        assert received(queue) == []


def test_server_that_keeps_nothing_on_disk_has_some_seconds(shop: Shop, redis_server: RedisServer):
    with Queue("emails", url=redis_server.url) as queue, relaying(shop, redis_server) as relay:
        write(shop, queue, "x")
        relay.turn()
        assert shop.states == ["sent"]
        with shop.engine.begin() as connection:
            connection.execute(sa.update(outbox.table).values(sent_ms=outbox.table.c.sent_ms - 60_000))
        database = open_database(shop.url)
        assert 60 <= lag(database).sent_seconds < 120
        database.close()
        relay._sweep.run()
    assert shop.rows == 0


def test_replicas_that_nobody_waits_for_are_a_warning_once(shop: Shop, start_server: StartServer):
    server, replica = (start_server(port=True, config={"repl-diskless-sync-delay": "0"}) for _ in range(2))
    follow(replica, server)
    with relaying(shop, server) as relay, capture_logs() as logs:
        for number in range(2):
            write(shop, NOWHERE, number)
            relay.turn()
    assert [each["replicas"] for each in logs if each["event"] == "outbox waits for no replica"] == [1]


def test_server_that_cannot_write_is_asked_once_a_sweep(own_server: RedisServer):
    written: dict[str, bool | None] = {}
    with own_server.client() as client:
        client.config_set("appendonly", "no")
    with Queue("emails", url=own_server.url) as first, Queue("other", url=own_server.url) as second:
        assert [each.is_safe for each in first.execute(operations.synced, written)] == [False]
        with own_server.client() as client:
            client.config_set("appendonly", "yes")
        assert [each.is_safe for each in second.execute(operations.synced, written)] == [False]
        assert [each.is_safe for each in second.execute(operations.synced, {})] == [True]


def test_rows_that_cannot_be_deleted_yet_are_logged(
    shop: Shop, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    def failing(*_: object) -> Any:
        raise LoginRefused("no right")

    write(shop, NOWHERE, 1)
    with relaying(shop, redis_server) as relay, capture_logs() as logs:
        relay.turn()
        monkeypatch.setattr(operations, "synced", failing)
        relay._sweep.run()
        relay._sweep.run()
    assert [each["event"] for each in logs].count("outbox rows not deleted yet") == 1


def test_full_queue_sets_rows_aside_and_blocks_nobody(shop: Shop, own_server: RedisServer):
    with Queue("small", url=own_server.url) as small, Queue("emails", url=own_server.url) as emails:
        small.configure(max_length=2)
        with shop.engine.begin() as connection:
            for number in range(4):
                outbox.send(connection, small, number)
                outbox.send(connection, emails, number)
        write(shop, emails, "later")
        relay = burst(shop, own_server)
        assert relay.refused == 2
        assert received(emails) == [0, 1, 2, 3, "later"]
        assert shop.states == ["refused", "refused"]
        assert received(small) == [0, 1]
        database = open_database(shop.url)
        assert [row[5] for row in database.execute(database.statements.refused, most=9)] == [
            "QueueFull: queue small was full, with max_length 2"
        ] * 2
        with database.writing():
            assert len(database.execute(database.statements.retry, id="")) == 2
        database.close()
        burst(shop, own_server)
        assert received(small) == [2, 3]
    assert shop.rows == 0


def test_message_too_large_for_the_server_is_set_aside(shop: Shop, start_server: StartServer):
    """The server closes the connection on it."""
    server = start_server(appendonly=True, config={"proto-max-bulk-len": "1mb"})
    with Queue("emails", url=server.url, max_payload=4_000_000) as queue:
        write(shop, queue, 1, "x" * 2_000_000, 2)
        with relaying(shop, server) as relay:
            relay.turn()
            for _ in range(2):
                assert shop.states == ["new"]
                due_now(shop)
                relay.turn()
        assert shop.states == ["refused"]
        assert received(queue) == [1, 2]


def test_rows_that_cannot_be_read_are_set_aside(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        write(shop, queue, *range(5))
        with shop.engine.begin() as connection:
            rows = connection.scalars(sa.select(outbox.table.c.seq).order_by(outbox.table.c.seq)).all()
            changes: list[dict[str, Any]] = [{"message": b"?"}, {"options": '{"due": "soon"}'}, {"queue": "a#b"}]
            for seq, change in zip(rows, changes, strict=False):
                connection.execute(sa.update(outbox.table).where(outbox.table.c.seq == seq).values(change))
        burst(shop, own_server)
        assert received(queue) == [3, 4]
    assert shop.states == ["refused"] * 3


def test_queue_that_refuses_does_not_stop_the_others(shop: Shop, own_server: RedisServer):
    with Queue("broken", url=own_server.url) as broken, Queue("emails", url=own_server.url) as emails:
        with own_server.client() as client:
            client.set("delayq:{broken}:pending", "another program's")
        write(shop, broken, "x")
        write(shop, emails, "y")
        burst(shop, own_server)
        assert received(emails) == ["y"]
        assert shop.states == ["held"]
        with own_server.client() as client:
            client.delete("delayq:{broken}:pending")
        with shop.engine.begin() as connection:
            connection.execute(sa.update(outbox.table).values(due_ms=0))
        burst(shop, own_server)
        assert received(broken) == ["x"]


def test_server_that_is_away_changes_nothing(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        write(shop, queue, "x")
        own_server.kill()
        with relaying(shop, own_server) as relay, pytest.raises(ServerUnreachable):
            relay.turn()
        assert shop.states == ["new"]
        own_server.start()
        burst(shop, own_server)
        assert received(queue) == ["x"]


def test_message_of_a_newer_delayq_waits_for_a_newer_relay_with_those_behind_it(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        write(shop, queue, 1, 2, 3)
        with shop.engine.begin() as connection:
            seq, message = connection.execute(sa.select(outbox.table.c.seq, outbox.table.c.message)).all()[1]
            newer = message[:1] + b"\x02" + message[2:]
            connection.execute(sa.update(outbox.table).where(outbox.table.c.seq == seq).values(message=newer))
        burst(shop, own_server)
        assert received(queue) == [1]
    assert shop.states == ["held"] * 2


@pytest.mark.parametrize("url", ["redis://localhost:6379/abc", "http://localhost"])
def test_url_that_no_server_has_ends_the_relay(shop: Shop, url: str):
    write(shop, NOWHERE, 1)
    relay = Relay(open_database(shop.url), url)
    with pytest.raises(InvalidURL):
        relay.run(threading.Event(), burst=True)
    relay.close()
    assert shop.states == ["new"]


@pytest.mark.parametrize("replicas", [-1, 1001, 0.5])
def test_number_of_replicas_is_checked(tmp_path: Path, replicas: Any):
    with pytest.raises(InvalidInput, match="wait_replicas"):
        Relay(open_database(f"sqlite:///{tmp_path}/x.db"), wait_replicas=replicas)


def test_fault_of_the_server_refuses_no_row(shop: Shop, own_server: RedisServer):
    """Such as a database that it does not have: no row counts as failed."""
    write(shop, NOWHERE, 1, 2)
    relay = Relay(open_database(shop.url), f"{own_server.url.partition('?')[0]}?db=99")
    for _ in range(4):
        with pytest.raises(ServerError):
            relay.turn()
    relay.close()
    assert shop.states == ["new"] * 2


@pytest.mark.parametrize("error", [ServerUnreachable("closed"), ServerError("upstream failure")])
def test_postponements_do_not_count_as_failures_of_a_row(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, error: ServerError
):
    """A small row is never refused since a connection was closed; other errors count if it fails alone, three times."""
    write(shop, NOWHERE, 1)
    fails: list[DelayqError] = [LoginRefused("no")] * 5 + [error]

    def failing(*_: object) -> Any:
        raise fails.pop(0)

    monkeypatch.setattr(operations, "send_rows", failing)
    with relaying(shop, own_server) as relay:
        while fails:
            relay.turn()
            assert shop.states in (["new"], ["held"])
            due_now(shop)


def test_rows_that_were_tried_wait_equally_long_and_the_others_with_them(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(relay_module, "ROWS", 2)
    write(shop, NOWHERE, *range(5))
    with own_server.client() as client:
        client.set("delayq:{emails}:pending", "another program's")
    with shop.engine.begin() as connection:  # one has failed before
        connection.execute(sa.update(outbox.table).where(outbox.table.c.seq == 2).values(attempts=2))
    with relaying(shop, own_server) as relay:
        relay.turn()
    with shop.engine.connect() as connection:
        first, second, *others = connection.scalars(sa.select(outbox.table.c.due_ms).order_by(outbox.table.c.seq))
    assert first == second > 0
    assert others == [0] * 3
    assert shop.states == ["held"] * 5


def test_times_of_a_transaction_rise_with_its_rows(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    """With the same delay, though pages of it are read at other times."""
    monkeypatch.setattr(relay_module, "ROWS", 6)
    with Queue("emails", url=own_server.url) as queue:
        ids = write(shop, queue, *range(100), delay=600)
        burst(shop, own_server)
        due = [queue.get(each).due_at for each in ids]  # type: ignore[union-attr]
    assert due == sorted(due)  # type: ignore[type-var]


def test_turn_ends_within_a_large_transaction(shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(relay_module, "ROWS", 2)
    monkeypatch.setattr(relay_module, "PAGES", 3)
    with Queue("emails", url=own_server.url) as queue, relaying(shop, own_server) as relay:
        write(shop, queue, *range(20))
        assert [relay.turn() for _ in range(5)] == [6, 6, 6, 2, 0]
        assert received(queue) == list(range(20))


@pytest.mark.full
def test_session_of_postgresql_ends_soon_if_its_relay_is_gone_and_keeps_no_notifications(
    postgresql_shop: Shop, own_server: RedisServer
):
    database = open_database(postgresql_shop.url)
    assert database.execute("SHOW idle_in_transaction_session_timeout") == [("2min",)]
    assert database.execute("SHOW jit") == [("off",)]
    relay, stop = Relay(database, own_server.url), threading.Event()
    for number in range(20):
        write(postgresql_shop, NOWHERE, number)
        database.execute("SELECT 1")  # psycopg keeps what it reads meanwhile
    assert database._connection._notifies_backlog  # type: ignore[attr-defined]
    turn = relay.turn
    relay.turn = lambda: stop.set() or turn()  # type: ignore[method-assign,func-returns-value]
    relay.run(stop)
    assert not database._connection._notifies_backlog  # type: ignore[attr-defined]
    relay.close()


def test_lag_is_the_age_of_the_oldest_row_to_send(shop: Shop, own_server: RedisServer):
    database = open_database(shop.url)
    with Queue("emails", url=own_server.url) as queue:
        assert lag(database) == (0, 0, 0, 0, 0, 0)
        write(shop, queue, "x", "y")
        with shop.engine.begin() as connection:
            connection.execute(sa.update(outbox.table).values(created_ms=outbox.table.c.created_ms - 60_000))
        found = lag(database)
        assert found[:4] == (2, 0, 0, 0)
        assert 60 <= found.seconds < 120
        burst(shop, own_server)
        assert lag(database) == (0, 0, 0, 0, 0, 0)
    database.close()


def test_one_relay_runs_on_sqlite(shop: Shop, own_server: RedisServer):
    if shop.engine.dialect.name != "sqlite":
        with relaying(shop, own_server) as first, relaying(shop, own_server) as second:
            assert first.turn() == second.turn() == 0
        return
    with relaying(shop, own_server) as first:
        first.turn()
        with relaying(shop, own_server) as second, pytest.raises(InvalidInput, match="another relay"):
            second.turn()
    with relaying(shop, own_server) as second:
        second.turn()


def test_one_relay_runs_on_sqlite_however_its_path_is_written(tmp_path: Path, own_server: RedisServer):
    (tmp_path / "link").symlink_to(tmp_path)
    with contextlib.ExitStack() as stack:
        first, second = (
            stack.enter_context(relaying(shop, own_server))
            for folder in (tmp_path, tmp_path / "link")
            for shop in made(f"sqlite:///{folder}/shop.db")
        )
        first.turn()
        with pytest.raises(InvalidInput, match="another relay"):
            second.turn()
    with pytest.raises(InvalidInput, match=r"nowhere/x\.db-relay, a lock: No such file"):
        open_database(f"sqlite:///{tmp_path}/nowhere/x.db").locking().__enter__()


def test_relay_closes_queues_that_it_used_long_ago(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(relay_module, "MOST_QUEUES", 3)
    with shop.engine.begin() as connection:
        for number in range(12):
            outbox.send(connection, Queue(f"tenant-{number}", url=own_server.url), number)
    with relaying(shop, own_server) as relay:
        relay.run(threading.Event(), burst=True)
        with own_server.client() as client:
            assert len(client.client_list()) <= 8
    assert shop.rows == 0


@pytest.mark.full
def test_relays_share_transactions_and_not_their_rows(postgresql_shop: Shop, own_server: RedisServer):
    """While one relay has taken a transaction, another one takes the next, whole."""
    shop = postgresql_shop
    with Queue("emails", url=own_server.url) as queue, shop.engine.connect() as one, shop.engine.connect() as two:
        for number in range(3):  # two transactions whose rows alternate
            outbox.send(one, queue, f"one-{number}")
            outbox.send(two, queue, f"two-{number}")
        one.commit()
        two.commit()
        with relaying(shop, own_server) as first, relaying(shop, own_server) as second:
            with first._database.locking():
                (head, *_) = first._database.execute(first._statements.heads, most=1)
                assert second.turn() == 3
                assert received(queue) == [f"two-{number}" for number in range(3)]
                assert second.turn() == 0
            assert second.turn() == 3
            assert received(queue) == [f"one-{number}" for number in range(3)]
            assert head


@pytest.mark.full
def test_commit_wakes_a_relay_on_postgresql(postgresql_shop: Shop, own_server: RedisServer):
    database = open_database(postgresql_shop.url)
    with Queue("emails", url=own_server.url) as queue:
        assert lag(database).new == 0
        database.wait(0)
        timer = threading.Timer(0.1, lambda: write(postgresql_shop, queue, "x"))
        timer.start()
        before = time.monotonic()
        database.wait(300)
        assert time.monotonic() - before < 200
        timer.join()
        assert lag(database).new == 1
    database.close()


def test_outgoing_messages_in_shards(shop: Shop, own_server: RedisServer):
    """The relay opens a new queue with the shards that its producer gave."""
    with Queue("wide", url=own_server.url, shards=4) as queue:
        with shop.engine.begin() as connection:
            outbox.send_many(connection, queue, [Outgoing(number) for number in range(40)])
        burst(shop, own_server)
        assert sorted(received(queue)) == list(range(40))
        assert queue.stats().acked == 40
    assert shop.rows == 0


@pytest.mark.parametrize("lasts", [0.0, 0.005])
def test_times_of_delayed_messages_rise_with_their_rows_beyond_pages_and_turns(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, lasts: float
):
    """However long the pages take: each is due by the time of its insert. A part is held, and sent later."""
    monkeypatch.setattr(relay_module, "ROWS", 4)
    monkeypatch.setattr(relay_module, "PAGES", 5)
    real = operations.send_rows

    def slow(*given: Any) -> Any:
        results = yield from real(*given)
        time.sleep(lasts)
        return results

    monkeypatch.setattr(operations, "send_rows", slow)
    with Queue("emails", url=own_server.url) as queue:
        ids = write(shop, queue, *range(60), delay=600)
        with relaying(shop, own_server) as relay:
            relay.turn()
            with shop.engine.begin() as connection:
                connection.execute(sa.update(outbox.table).values(state="held"))
            while relay.turn():
                pass
        found = [queue.get(each).due_at for each in ids]  # type: ignore[union-attr]
        assert found == sorted(found)  # type: ignore[type-var]
        assert (found[-1] - found[0]).total_seconds() < 0.1 + spread(ids)  # type: ignore[operator]


def spread(ids: list[str]) -> float:
    """The seconds between the ids of a transaction, which are UUIDs of version 7."""
    first, last = (int(each.replace("-", "")[:12], 16) for each in (ids[0], ids[-1]))
    return (last - first) / 1000


def test_clock_of_redis_is_asked_for_all_queues_and_again_after_a_while(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    asked, ahead = [], [3_600_000]

    def server_ms(context: Any) -> Any:
        asked.append(context.name)
        return (yield from real(context)) + ahead[0]

    real = operations.server_ms
    monkeypatch.setattr(operations, "server_ms", server_ms)
    with (
        Queue("emails", url=own_server.url) as emails,
        Queue("others", url=own_server.url) as others,
        relaying(shop, own_server) as relay,
    ):
        first = write(shop, emails, 1, 2, delay=600)
        write(shop, others, 1, delay=600)
        write(shop, others, 2)
        before = time.time()
        relay.turn()
        assert asked in [["emails"] * times for times in range(1, clock_difference.MEASURES + 1)]
        due = emails.get(first[0]).due_at.timestamp()  # type: ignore[union-attr]
        assert -60 < due - before - 4200 < 60
        ahead[0] = 0
        monkeypatch.setattr(clock_difference, "SECONDS", -1)
        (later,) = write(shop, emails, 3, delay=600)
        relay.turn()
        due = emails.get(later).due_at.timestamp()  # type: ignore[union-attr]
        assert -60 < due - time.time() - 600 < 60
        assert received(others) == [2]


def test_counts_are_those_of_what_was_committed(shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch):
    class Lost(Exception):
        pass

    def lose(*_: object, **__: object) -> None:
        raise Lost

    with Queue("small", url=own_server.url) as small, relaying(shop, own_server) as relay:
        small.configure(max_length=1)
        write(shop, small, 1, 2)
        monkeypatch.setattr(log, "error", lose)
        with pytest.raises(Lost):
            relay.turn()
        assert (relay.moved, relay.refused) == (0, 0)
        assert shop.states == ["new"] * 2


def test_row_stays_while_the_server_says_that_its_message_is_not_on_the_disk(
    shop: Shop, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
):
    """While it rewrites its file, it does not wait for the disk."""
    monkeypatch.setattr(operations, "SYNC_MS", 200)
    server = start_server(appendonly=True, config={"appendfsync": "everysec", "no-appendfsync-on-rewrite": "yes"})
    with (
        Queue("emails", url=server.url) as queue,
        relaying(shop, server, settle_seconds=0) as relay,
        server.client() as client,
    ):
        for number in range(6):
            client.set(f"key-{number}", "x")
        client.config_set("rdb-key-save-delay", 1_000_000)
        client.bgrewriteaof()
        assert eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 1, 30)
        write(shop, queue, "x")
        relay._sweep_at = math.inf
        relay.turn()
        relay._sweep.run()
        is_rewriting = client.info("persistence")["aof_rewrite_in_progress"]
        assert (is_rewriting, shop.states) == (1, ["sent"])
        assert eventually(lambda: relay._sweep.run() or shop.rows == 0, 60)  # type: ignore[func-returns-value]


def test_server_that_never_waits_for_its_disk_has_some_seconds(
    shop: Shop, start_server: StartServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(operations, "SYNC_MS", 200)
    server = start_server(appendonly=True, config={"appendfsync": "no"})
    with Queue("emails", url=server.url) as queue, relaying(shop, server, settle_seconds=0) as relay:
        write(shop, queue, "x")
        relay._sweep_at = math.inf
        relay.turn()
        assert shop.states == ["sent"]
        relay._sweep.run()
        assert shop.rows == 0


def test_slow_first_round_trip_does_not_shift_due_times(
    shop: Shop, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    server_ms, trips = operations.server_ms, []

    def slow_at_first(context: Any) -> Any:
        trips.append(1)
        if len(trips) == 1:
            time.sleep(1)
        return server_ms(context)

    monkeypatch.setattr(operations, "server_ms", slow_at_first)
    with Queue("emails", url=redis_server.url) as queue, relaying(shop, redis_server) as relay:
        write(shop, queue, "x", delay=60)
        [(created,)] = shop.engine.connect().execute(sa.select(outbox.table.c.created_ms)).all()
        relay.turn()
        (info,) = queue.peek("pending")
        assert info.due_at is not None
        late = info.due_at.timestamp() * 1000 - created - 60_000
        assert abs(late) < 300, "half of the slow trip is 500 ms"


def test_redis_that_is_away_is_noticed_though_all_rows_are_sent(shop: Shop, start_server: StartServer):
    server = start_server()
    with relaying(shop, server) as relay:
        for name in "abc":
            with Queue(name, url=server.url) as queue:
                write(shop, queue, "x")
        relay.turn()
        assert shop.states == ["sent"] * 3
        server.kill()
        relay._sweep_at = 0.0
        with pytest.raises(ServerUnreachable):
            relay.turn()
