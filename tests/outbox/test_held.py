"""A queue that refuses all messages for a while costs the rows of other queues next to nothing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any

import pytest
import sqlalchemy as sa

from delayq import Outgoing, Queue, outbox
from delayq.errors import KeyOverwritten, ServerOutOfMemory
from delayq.operations import outbox as operations
from delayq.outbox import open_database
from delayq.outbox import relay as relay_module
from delayq.outbox.lag import lag
from delayq.outbox.relay import HELD_PAGES, Relay
from delayq.outbox.statements import ROWS
from delayq.protocol.queue_keys import QueueKeys
from tests.conftest import StartServer
from tests.harness.dead_master import OWN_SLOTS
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster
from tests.harness.waiting import eventually
from tests.outbox.conftest import Shop
from tests.outbox.test_parts import running
from tests.outbox.test_relay import burst, due_now, received, relaying, write

BROKEN = "delayq:{broken}:pending"
MANY = 10_000


def refuse(server: RedisServer) -> None:
    """Let the queue `broken` refuse everything."""
    with server.client() as client:
        client.set(BROKEN, "another program's")


def accept(server: RedisServer) -> None:
    with server.client() as client:
        client.delete(BROKEN)


def many(shop: Shop, queue: Queue) -> None:
    """Write 10,000 rows."""
    with shop.engine.begin() as connection:
        outbox.send_many(connection, queue, [Outgoing(number) for number in range(MANY)])


def counted(relay: Relay) -> list[int]:
    """The number of rows of each send from now on."""
    sizes: list[int] = []
    send: Any = relay._send_group

    def counting(queue: Queue, rows: Any) -> Any:
        sizes.append(len(rows))
        return send(queue, rows)

    relay._send_group = counting  # type: ignore[method-assign]
    return sizes


def test_row_behind_ten_thousand_of_a_queue_that_refuses_is_sent_at_once(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(relay_module, "FIRST_WAIT_MS", 60_000)
    refuse(own_server)
    with Queue("broken", url=own_server.url) as broken, Queue("emails", url=own_server.url) as emails:
        many(shop, broken)
        write(shop, emails, 1)
        with relaying(shop, own_server) as relay:
            sizes = counted(relay)
            relay.turn()
            relay.turn()
            assert received(emails) == [1]
            assert sizes == [ROWS, 1]
            for number in range(2, 5):  # each time, the refusing queue is tried with a page
                due_now(shop)
                write(shop, emails, number)
                sizes.clear()
                relay.turn()
                assert received(emails) == [number]
                assert sizes == [1, ROWS]
            assert shop.states.count("held") == MANY
            write(shop, broken, "new")
            sizes.clear()
            relay.turn()
            assert sizes == []
            accept(own_server)
            due_now(shop)
            write(shop, emails, 5)
            assert relay.turn() == HELD_PAGES * ROWS + 1
            assert received(emails) == [5]
        burst(shop, own_server)
        assert received(broken) == [*range(MANY), "new"]
    assert shop.rows == 0


def test_order_of_a_transaction_is_kept_though_a_part_of_it_is_held(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    """A turn ends within it, and the queue accepts messages before the next one."""
    monkeypatch.setattr(relay_module, "FIRST_WAIT_MS", 60_000)
    monkeypatch.setattr(relay_module, "ROWS", 2)
    monkeypatch.setattr(relay_module, "PAGES", 3)
    refuse(own_server)
    with Queue("broken", url=own_server.url) as broken, relaying(shop, own_server) as relay:
        write(shop, broken, *range(20))
        relay.turn()
        assert shop.states == ["held"] * 6 + ["new"] * 14
        accept(own_server)
        relay.turn()
        assert received(broken) == []
        assert shop.states == ["held"] * 12 + ["new"] * 8
        due_now(shop)
        while relay.turn():
            pass
        assert received(broken) == list(range(20))


def test_other_queues_of_a_transaction_are_served_beyond_a_turn(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    """The first row of the transaction is one that its queue refuses."""
    monkeypatch.setattr(relay_module, "ROWS", 2)
    monkeypatch.setattr(relay_module, "PAGES", 3)
    refuse(own_server)
    with Queue("broken", url=own_server.url) as broken, Queue("emails", url=own_server.url) as emails:
        with shop.engine.begin() as connection:
            outbox.send(connection, broken, "x")
            outbox.send_many(connection, emails, [Outgoing(number) for number in range(20)])
        with relaying(shop, own_server) as relay:
            for _ in range(5):
                relay.turn()
        assert received(emails) == list(range(20))
    assert shop.states == ["held"]


def test_held_rows_are_tried_less_and_less_often(shop: Shop, own_server: RedisServer):
    refuse(own_server)
    waits = []
    with Queue("broken", url=own_server.url) as broken, relaying(shop, own_server) as relay:
        write(shop, broken, 1)
        for _ in range(8):
            before = relay._now
            relay.turn()
            assert relay._now > before
            with shop.engine.connect() as connection:
                due = connection.scalar(sa.select(outbox.table.c.due_ms))
            waits.append(round(((due or 0) - relay._now) / 1000))
            due_now(shop)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]


def test_queues_beyond_those_that_a_turn_looks_at_are_tried_in_the_next(
    shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(relay_module, "HELD_QUEUES", 2)
    names = [f"queue-{number}" for number in range(5)]
    with shop.engine.begin() as connection:
        for name in names:
            outbox.send(connection, Queue(name, url=own_server.url), name)
        connection.execute(sa.update(outbox.table).values(state="held"))
    with relaying(shop, own_server) as relay:
        assert [relay.turn() for _ in range(4)] == [2, 2, 1, 0]
    assert shop.rows == 0


def test_held_rows_wait_to_be_sent(shop: Shop, own_server: RedisServer):
    refuse(own_server)
    with Queue("broken", url=own_server.url) as broken:
        write(shop, broken, 1, 2)
        with relaying(shop, own_server) as relay:
            relay.turn()
        with shop.engine.begin() as connection:
            connection.execute(sa.update(outbox.table).values(created_ms=outbox.table.c.created_ms - 60_000))
    database = open_database(shop.url)
    found = lag(database)
    database.close()
    assert (found.new, found.held, found.unsent) == (0, 2, 2)
    assert 60 <= found.seconds < 120


@pytest.mark.full
def test_relays_do_not_share_a_held_transaction(postgresql_shop: Shop, own_server: RedisServer):
    shop = postgresql_shop
    refuse(own_server)
    with (
        Queue("broken", url=own_server.url) as broken,
        relaying(shop, own_server) as first,
        relaying(shop, own_server) as second,
    ):
        write(shop, broken, *range(3))
        first.turn()
        write(shop, broken, "later")
        accept(own_server)
        due_now(shop)
        with first._database.locking():
            of = {"prefix": "delayq", "queue": "broken"}
            assert len(first._database.execute(first._statements.held_heads, most=9, **of)) == 1
            assert second.turn() == 1  # the later row waits behind the held ones
            assert received(broken) == []
        due_now(shop)
        second.turn()
        assert received(broken) == [*range(3), "later"]


def names_on(cluster: Cluster, server: RedisServer, is_there: bool) -> list[str]:
    """Names of queues whose keys are on a master, or on other ones."""
    names = [f"queue-{number}" for number in range(60)]
    return [each for each in names if (cluster.owner(QueueKeys("delayq", each, 0).meta) is server) is is_there]


@pytest.mark.full
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_queues_of_a_dead_master_delay_no_others(shop: Shop, start_server: StartServer, how: str):
    cluster = Cluster(start_server, config=OWN_SLOTS)
    url, dead = f"{cluster.url}?socket_timeout=1", cluster.masters[0]
    away = [Queue(each, url=url) for each in names_on(cluster, dead, True)[:12]]
    alive = Queue(names_on(cluster, dead, False)[0], url=url)
    relay = Relay(open_database(shop.url), url)
    try:
        write(shop, alive, "warm up")
        relay.turn()
        assert received(alive) == ["warm up"]
        if how == "killed":
            dead.kill()
        else:
            os.kill(dead.pid, signal.SIGSTOP)
        many(shop, away[0])
        for each in away:
            write(shop, each, 1)
        write(shop, alive, 1)
        relay.turn()
        relay.turn()
        assert eventually(partial(is_received, alive, 1), 30)
        for number in range(2, 5):
            due_now(shop)
            write(shop, alive, number)
            took = seconds(relay.turn)
            assert eventually(partial(is_received, alive, number), 30)
            assert took < 5, "each of the twelve queues has waited for the dead master"
        if how == "killed":
            dead.start()
            cluster.wait()
        else:
            os.kill(dead.pid, signal.SIGCONT)
        assert eventually(lambda: relay.turn() == 0 and "held" not in shop.states, 120)
        assert received(away[0]) == [*range(MANY), 1]
        assert received(away[1]) == [1]
    finally:
        relay.close()
        for queue in (*away, alive):
            queue.close()
        if how == "frozen":
            os.kill(dead.pid, signal.SIGCONT)


def is_received(queue: Queue, payload: Any) -> bool:
    return received(queue) == [payload]


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_rows_of_a_server_that_is_not_a_cluster_are_not_held(shop: Shop, own_server: RedisServer):
    with Queue("emails", url=own_server.url) as queue:
        write(shop, queue, 1)
        assert not queue.execute(operations.is_on_cluster)
        with own_server.client() as client:
            client.config_set("maxmemory", 1)
        with relaying(shop, own_server) as relay, pytest.raises(ServerOutOfMemory):
            relay.turn()
        assert shop.states == ["new"]


@pytest.mark.full
def test_order_and_number_of_messages_hold_while_relays_hold_and_send_by_turns(
    postgresql_shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
):
    """Three relays, transactions that need several turns, and a queue that refuses a third of the sends."""
    shop, chance = postgresql_shop, random.Random(7)
    for name, value in {"ROWS": 3, "PAGES": 2, "HELD_PAGES": 1, "FIRST_WAIT_MS": 10, "LONGEST_WAIT_MS": 40}.items():
        monkeypatch.setattr(relay_module, name, value)
    monkeypatch.setattr(relay_module, "POLL_SECONDS", 0.02)
    real, refused = operations.send_rows, []

    def refusing(context: Any, rows: Any, replicas: int = 0) -> Any:
        if context.name == "broken" and chance.random() < 1 / 3:
            refused.append(len(rows))
            raise KeyOverwritten("another program's")
        return (yield from real(context, rows, replicas))

    monkeypatch.setattr(operations, "send_rows", refusing)
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(running(Relay(open_database(shop.url), own_server.url)))
        broken, emails = (stack.enter_context(Queue(each, url=own_server.url)) for each in ("broken", "emails"))
        for number in range(40):
            with shop.engine.begin() as connection:
                for place in range(20):
                    outbox.send(connection, (broken, emails)[chance.random() < 0.3], [number, place])
        assert eventually(lambda: shop.rows == 0, 120)
        found = {queue.name: received(queue) for queue in (broken, emails)}
        assert broken.stats().sent + emails.stats().sent == 800
    assert len(refused) > 10
    assert sorted(found["broken"] + found["emails"]) == [[number, place] for number in range(40) for place in range(20)]
    for came in found.values():
        assert sorted(came, key=itemgetter(0)) == sorted(came)  # sorting by the number keeps the order of the places
