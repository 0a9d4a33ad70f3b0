"""Relays with a Cluster, Sentinel and real failovers, and with sessions of PostgreSQL that are lost."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from delayq import Outgoing, Queue, outbox
from delayq.operations import outbox as operations
from delayq.operations import send
from delayq.outbox import Relay, open_database
from delayq.outbox import database as database_module
from tests.conftest import StartServer
from tests.harness.outbox_kills import KillablePostgreSQL
from tests.harness.servers import RedisServer
from tests.harness.topologies import Watched, follow, is_master
from tests.harness.tree import ROOT
from tests.harness.waiting import eventually
from tests.outbox.conftest import Shop, made
from tests.outbox.test_relay import due_now, received, relaying, write

pytestmark = pytest.mark.full


@contextmanager
def running(relay: Relay) -> Iterator[Relay]:
    """Run a relay on a thread."""
    stop = threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        yield relay
    finally:
        stop.set()
        thread.join()
        relay.close()


def sent(queue: Queue) -> int:
    """How many messages were ever created."""
    return queue.stats().sent


@pytest.mark.parametrize("shards", [1, 4])
def test_rows_become_messages_on_a_cluster(shop: Shop, cluster_url: str, shards: int):
    with Queue("emails", url=cluster_url, shards=shards) as queue, Queue("others", url=cluster_url) as others:
        with shop.engine.begin() as connection:
            outbox.send_many(connection, queue, [Outgoing(number) for number in range(600)])
            outbox.send(connection, others, "x")
        relay = Relay(open_database(shop.url), cluster_url, settle_seconds=0)
        relay.run(threading.Event(), burst=True)
        relay.close()
        found = received(queue)
        assert (found if shards == 1 else sorted(found)) == list(range(600))
        assert received(others) == ["x"]
        assert sent(queue) == 600
    assert shop.rows == 0


@contextmanager
def failed_over(watched: Watched) -> Iterator[None]:
    """Let the replica lag while the block runs; then kill its master, so that the replica is promoted without it."""
    [replica] = watched.replicas
    os.kill(replica.pid, signal.SIGSTOP)
    try:
        with watched.master.client() as client:
            client.client_kill_filter(_type="replica")
        yield
        watched.master.kill()
    finally:
        os.kill(replica.pid, signal.SIGCONT)
    watched.give_up_after(500)
    assert eventually(lambda: is_master(replica), 120)


@pytest.mark.parametrize("waits", [False, True])
def test_messages_that_a_promoted_replica_lacks_are_sent_again(
    shop: Shop, start_server: StartServer, monkeypatch: pytest.MonkeyPatch, waits: bool
):
    """Without wait_replicas, rows that are not deleted yet; with it, all of them."""
    monkeypatch.setattr(send, "REPLICA_TIMEOUT_MS", 300)
    watched = Watched(start_server, replicas=1, down_after_milliseconds=60_000, failover_timeout=5000)
    relay = Relay(open_database(shop.url), watched.url, wait_replicas=int(waits), settle_seconds=1000)
    with Queue("emails", url=watched.url) as queue:
        write(shop, queue, "before")
        relay.turn()
        assert shop.states == ([] if waits else ["sent"])
        relay._sweep_at = float("inf")
        with failed_over(watched):
            write(shop, queue, 1, 2, 3)
            relay.turn()
            assert shop.states[-3:] == ["held" if waits else "sent"] * 3
        if waits:
            watched.master.start()
            follow(watched.master, watched.replicas[0])
        for _ in range(2):  # the connections have ended
            with contextlib.suppress(Exception):
                relay._sweep.run()
        assert eventually(lambda: all_sent(shop, relay), 60)
        assert received(queue) == ["before", 1, 2, 3]
    relay.close()


def all_sent(shop: Shop, relay: Relay) -> bool:
    """Take a turn; return whether nothing is to be sent."""
    due_now(shop)
    with contextlib.suppress(Exception):
        relay.turn()
        relay._sweep.run()
        relay.turn()
    return not {"new", "held"} & set(shop.states)


def frozen(monkeypatch: pytest.MonkeyPatch, when: str, during: Callable[[], None]) -> None:
    """Let something happen around the next send of a relay, once."""
    real, is_first = operations.send_rows, [True]

    def sending(context: Any, rows: Any, replicas: int = 0) -> Any:
        is_mine = is_first.pop() if is_first else False
        if is_mine and when == "before":
            during()
        results = yield from real(context, rows, replicas)
        if is_mine and when == "after":
            during()
        return results

    monkeypatch.setattr(operations, "send_rows", sending)


MOMENTS = pytest.mark.parametrize("when", ["before", "after"])


@MOMENTS
def test_relay_that_stands_still_for_longer_than_its_session_lives_doubles_nothing(
    postgresql_shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, when: str
):
    """PostgreSQL ends its session; another relay sends the rows, and their messages are acked meanwhile."""
    shop, got = postgresql_shop, []
    monkeypatch.setitem(database_module._SETTINGS, "idle_in_transaction_session_timeout", "300")
    with (
        Queue("emails", url=own_server.url) as queue,
        relaying(shop, own_server) as first,
        relaying(shop, own_server) as second,
    ):

        def during() -> None:
            assert eventually(lambda: second.turn() > 0, 60)
            got.extend(received(queue))

        write(shop, queue, 1, 2, 3)
        frozen(monkeypatch, when, during)
        with pytest.raises(psycopg.Error):
            first.turn()
        assert got == [1, 2, 3]
        assert received(queue) == []
        assert sent(queue) == 3
        assert shop.rows == 0


@MOMENTS
def test_relay_whose_session_is_ended_in_the_middle_continues(
    postgresql_shop: Shop, own_server: RedisServer, monkeypatch: pytest.MonkeyPatch, when: str
):
    shop = postgresql_shop
    with Queue("emails", url=own_server.url) as queue:
        write(shop, queue, 1, 2, 3)
        relay = Relay(open_database(shop.url), own_server.url)
        [(session,)] = relay._database.execute("SELECT pg_backend_pid()")
        frozen(monkeypatch, when, lambda: end(shop, session))
        with running(relay):
            assert eventually(lambda: shop.rows == 0, 60)
        assert received(queue) == [1, 2, 3]
        assert sent(queue) == 3


def end(shop: Shop, session: int) -> None:
    with shop.engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": session})


def test_stopped_process_of_a_relay_keeps_no_rows_and_doubles_none(postgresql_shop: Shop, own_server: RedisServer):
    """SIGSTOP again and again while another relay runs, and rows are written."""
    shop = postgresql_shop
    command = [sys.executable, "-m", "delayq", "relay", shop.url, "--url", own_server.url, "--log-level", "error"]
    stopped = subprocess.Popen(command, cwd=ROOT)
    try:
        with Queue("emails", url=own_server.url) as queue, running(Relay(open_database(shop.url), own_server.url)):
            for number in range(60):
                write(shop, queue, number)
                os.kill(stopped.pid, signal.SIGSTOP if number % 2 else signal.SIGCONT)
                time.sleep(0.02)
            os.kill(stopped.pid, signal.SIGCONT)
            assert eventually(lambda: shop.rows == 0, 60)
            assert sorted(received(queue)) == list(range(60))
            assert sent(queue) == 60
    finally:
        stopped.kill()
        stopped.wait()


def test_relay_outlives_a_restart_of_postgresql(own_server: RedisServer):
    database = KillablePostgreSQL()
    shop = next(made(database.url))
    try:
        with (
            Queue("emails", url=own_server.url) as queue,
            running(Relay(open_database(shop.url), own_server.url)) as relay,
        ):
            write(shop, queue, 1)
            assert eventually(lambda: relay.moved == 1, 60)
            database.kill()
            database.start()
            shop.engine.dispose()
            write(shop, queue, 2)
            assert eventually(lambda: relay.moved == 2, 60)
            assert eventually(lambda: shop.rows == 0, 60)
            assert received(queue) == [1, 2]
    finally:
        shop.engine.dispose()
        database.close()
