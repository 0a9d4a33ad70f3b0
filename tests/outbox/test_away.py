"""A server that is away is noticed though only held rows are to be sent, and costs one wait."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from delayq import Queue, outbox
from delayq.errors import KeyOverwritten, ServerUnreachable
from delayq.operations import outbox as operations
from delayq.outbox import Relay, open_database
from delayq.outbox import relay as relay_module
from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually
from tests.outbox.conftest import Shop
from tests.outbox.test_held import counted
from tests.outbox.test_relay import due_now, received, relaying, write


def hold(shop: Shop, *names: str, due_ms: int = 0) -> None:
    """Write a held row for each queue."""
    with shop.engine.begin() as connection:
        for name in names:
            outbox.send(connection, Queue(name, url="redis://127.0.0.1:1"), name)
        connection.execute(sa.update(outbox.table).values(state="held", due_ms=due_ms))


@contextmanager
def running(shop: Shop, server: RedisServer) -> Iterator[Relay]:
    """Run a relay on a thread, which closes it, as SQLite demands."""
    stop, relay = threading.Event(), Relay(open_database(shop.url), server.url)

    def run() -> None:
        relay.run(stop)
        relay.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield relay
    finally:
        stop.set()
        thread.join()


def test_relay_with_held_rows_only_is_not_ready_while_redis_is_away(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(relay_module, "POLL_SECONDS", 0.05)
    hold(shop, "a", "b", "c")
    own_server.kill()
    with capture_logs() as logs, running(shop, own_server) as relay:
        assert eventually(lambda: relay.trouble.startswith("Redis: "), 30)
        for _ in range(20):
            time.sleep(0.02)
            assert relay.trouble.startswith("Redis: ")
        assert shop.states == ["held"] * 3
        own_server.start()
        assert eventually(lambda: shop.rows == 0, 60)
        assert eventually(lambda: not relay.trouble, 30)
    events = [each["event"] for each in logs]
    assert events.count("redis unavailable, retrying") == events.count("redis available again") == 1


def test_frozen_server_costs_one_wait(shop: Shop, own_server: RedisServer):
    """The rows of queues that were served before are noted."""
    names = [f"queue-{number}" for number in range(8)]
    relay = Relay(open_database(shop.url), f"{own_server.url}{'&' if '?' in own_server.url else '?'}socket_timeout=1")
    hold(shop, *names)
    assert relay.turn() == 8
    tries = counted(relay)
    for write_some in hold, write_each:
        write_some(shop, *names)
        os.kill(own_server.pid, signal.SIGSTOP)
        try:
            tries.clear()
            with pytest.raises(ServerUnreachable):
                relay.turn()
            assert tries == [1], "each of the eight queues has waited"
        finally:
            os.kill(own_server.pid, signal.SIGCONT)
        assert eventually(lambda: all_done(relay, shop), 60)
    relay.close()


def write_each(shop: Shop, *names: str) -> None:
    for each in names:
        write(shop, Queue(each, url="redis://127.0.0.1:1"), each)


def all_done(relay: Relay, shop: Shop) -> bool:
    try:
        relay.turn()
    except ServerUnreachable:
        return False
    return shop.rows == 0


def test_rows_that_were_sent_before_the_server_went_are_done(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    hold(shop, "a", "b")
    with relaying(shop, own_server) as relay:
        send = relay._send_group

        def dying(queue: Queue, rows: list[relay_module._Taken]) -> list[relay_module._Outcome]:
            if queue.name == "b":
                own_server.kill()
            return send(queue, rows)

        monkeypatch.setattr(relay, "_send_group", dying)
        with pytest.raises(ServerUnreachable):
            relay.turn()
        assert (relay.moved, shop.states) == (1, ["held"])


def test_held_queues_behind_the_last_one_are_tried_in_the_same_turn(shop: Shop, own_server: RedisServer):
    hold(shop, "a", "b", "c")
    with relaying(shop, own_server) as relay:
        relay._looked_at = ("delayq", "b")
        assert relay.turn() == 3


def test_rows_with_a_wrong_number_of_shards_are_refused_and_the_queue_is_served(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        queue.send("before")
        write(shop, queue, 1)
        write(shop, Queue("emails", url="redis://127.0.0.1:1", shards=2), "x", "y")
        write(shop, queue, 2)
        with relaying(shop, own_server) as relay:
            relay.run(threading.Event(), burst=True)
            assert relay.refused == 2
            assert received(queue) == ["before", 1, 2]
            assert shop.states == ["refused"] * 2
            queue.purge()
            database = open_database(shop.url)
            [error, _] = [row[5] for row in database.execute(database.statements.refused, most=9)]
            assert error.startswith("ShardsMismatch: ")
            with shop.engine.begin() as connection:  # as if the queue had been made again with two shards
                options = sa.func.replace(outbox.table.c.options, '"shards":2', '"shards":1')
                connection.execute(sa.update(outbox.table).values(options=options))
            with database.writing():
                database.execute(database.statements.retry, id="")
            database.close()
            relay.run(threading.Event(), burst=True)
        assert received(queue) == ["x", "y"]


def test_order_holds_between_producers_that_differ(shop: Shop, own_server: RedisServer):
    """Within a transaction, two queue objects of a name with other settings."""
    with Queue("emails", url=own_server.url) as queue:
        other = Queue("emails", url=own_server.url, max_retries=9)
        with shop.engine.begin() as connection:
            for number in range(10):
                outbox.send(connection, other if number % 3 else queue, number)
        with relaying(shop, own_server) as relay:
            sent: list[object] = []
            send = relay._send_group

            def noting(queue: Queue, rows: list[relay_module._Taken]) -> list[relay_module._Outcome]:
                sent.extend(each.seq for each in rows)
                return send(queue, rows)

            relay._send_group = noting  # type: ignore[method-assign]
            relay.turn()
        assert sent == sorted(sent)  # type: ignore[type-var]
        assert len(sent) == 10
        assert received(queue) == list(range(10))


@pytest.mark.parametrize(("bad", "held"), [(7, 5), (0, 2), (0, 1)])
def test_rows_behind_one_that_is_held_are_not_sent(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, bad: int, held: int
):
    """A page is sent by halves, as one row cannot be read, and the queue refuses one of its parts."""
    monkeypatch.setattr(relay_module, "ROWS", 8)
    with Queue("emails", url=own_server.url) as queue, relaying(shop, own_server) as relay:
        ids = write(shop, queue, *range(16))
        with shop.engine.begin() as connection:
            connection.execute(sa.update(outbox.table).where(outbox.table.c.id == ids[bad]).values(message=b"?"))
        real, refusals = operations.send_rows, [True]

        def refusing(context: Any, rows: Any, replicas: int = 0) -> Any:
            if refusals and len(rows) <= 2 and ids[held] in [each.id for each in rows]:
                refusals.clear()
                raise KeyOverwritten("another program's")
            return (yield from real(context, rows, replicas))

        monkeypatch.setattr(operations, "send_rows", refusing)
        relay.turn()
        before = received(queue)
        assert before == [each for each in range(16) if each != bad][: len(before)]
        assert len(before) <= held
        due_now(shop)
        while relay.turn():
            pass
        assert before + received(queue) == [each for each in range(16) if each != bad]
