"""Calls on a cluster whose slots move, and whose nodes die."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from delayq import Consumer, Outgoing, Queue
from delayq.errors import DelayqError, ServerError, ServerNotReady, ServerUnreachable
from delayq.model.placement import shard_of
from delayq.operations.queue_context import QueueContext
from delayq.protocol.command import Command, identity
from delayq.protocol.operation import execute
from delayq.protocol.queue_keys import QueueKeys
from delayq.transport.bell_source import BellSource
from delayq.transport.listener import BellListener
from delayq.transport.open_client import connect
from delayq.transport.server_check import check_server
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster, is_master, refusals, tell
from tests.harness.waiting import Stopwatch, eventually

pytestmark = pytest.mark.full

StartServer = Callable[..., RedisServer]

META = QueueKeys("delayq", "work").meta
STATS = QueueKeys("delayq", "work").stats


@pytest.fixture
def cluster(start_server: StartServer) -> Cluster:
    """Three masters that share the slots and serve their own without one another, and one without slots."""
    return Cluster(start_server, empty=1, config={"cluster-require-full-coverage": "no"})


@pytest.fixture
def queue(cluster: Cluster) -> Iterator[Queue]:
    with Queue("work", url=cluster.url) as queue:
        queue.send("first")
        yield queue


@contextlib.contextmanager
def half_moved(cluster: Cluster, target: RedisServer) -> Iterator[None]:
    """A move of the queue's slot that has begun, with no key moved yet."""
    source, slot = cluster.owner(META), tell(target, "KEYSLOT", META)
    tell(target, "SETSLOT", slot, "IMPORTING", cluster.id(source))
    tell(source, "SETSLOT", slot, "MIGRATING", cluster.id(target))
    yield
    for node in (source, target):
        tell(node, "SETSLOT", slot, "STABLE")


# -- slots that move -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wait_replicas", [0, 1])
def test_sends_and_claims_follow_a_slot_to_a_master_that_had_none(
    cluster: Cluster, queue: Queue, wait_replicas: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.send.REPLICA_TIMEOUT_MS", 1)
    (target,) = cluster.empty
    cluster.move(META, target)
    with contextlib.suppress(DelayqError):  # no replica confirms it
        queue.send("second", id="second", wait_replicas=wait_replicas)
    with target.client() as client:
        assert client.exists(QueueKeys("delayq", "work").message("second")) == 1
    messages = queue.receive(10)
    assert sorted(message.payload for message in messages) == ["first", "second"]
    assert queue.ack(messages) == [True, True]


def test_wait_for_replicas_asks_the_node_that_took_the_message(
    cluster: Cluster, queue: Queue, start_server: StartServer
) -> None:
    """The old master has a replica, and must not answer for the new one, which has none."""
    source, (target,) = cluster.owner(META), cluster.empty
    replica = start_server(port=True, config={"cluster-enabled": "yes", "repl-diskless-sync-delay": "0"})
    tell(replica, "MEET", "127.0.0.1", source.port)
    assert eventually(lambda: cluster.id(source) in str(tell(replica, "NODES")))
    assert eventually(lambda: can(lambda: tell(replica, "REPLICATE", cluster.id(source))))
    with source.client() as client:
        assert eventually(lambda: client.wait(1, 10) == 1)
    queue.execute(QueueContext.opened)
    cluster.move(META, target)
    calls = [Command(STATS, ("HINCRBY", STATS, "x", 0), identity), Command(STATS, ("WAIT", 1, 10), identity)]
    assert queue._executor.run(calls) == [0, 0]


def can(do: Callable[[], object]) -> bool:
    try:
        do()
    except redis.RedisError:
        return False
    return True


def test_moving_key_is_requested_from_its_new_node(cluster: Cluster, queue: Queue) -> None:
    (target,) = cluster.empty
    source = cluster.owner(META)
    with half_moved(cluster, target):
        missing = QueueKeys("delayq", "work").message("missing")
        assert queue._executor.run([Command(missing, ("MGET", missing), identity)]) == [[None]]
        assert refusals(source)["ASK"] == 1
        with pytest.raises(ServerNotReady):
            queue.send("its keys are apart")
    assert queue.send("second").created


def test_receiver_that_waits_on_a_moving_slot_gets_the_next_message(cluster: Cluster, queue: Queue) -> None:
    assert len(queue.receive(10)) == 1
    found: list[Any] = []

    def receive() -> None:
        try:
            found.extend(queue.receive(10, wait=120))
        except DelayqError as error:
            found.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    source, (target,) = cluster.owner(META), cluster.empty
    with source.client() as client:
        assert eventually(lambda: any(each["cmd"] == "blpop" for each in client.client_list()))
    cluster.move(META, target)
    queue.send("second")
    thread.join()
    assert [getattr(each, "payload", each) for each in found] == ["second"]


def test_bell_of_a_moving_slot_rings_and_is_not_polled_again_at_once(
    cluster: Cluster, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.transport.listener.FALLBACK_MS", 600_000)
    keys, source = queue._context.shards[0].keys, cluster.owner(META)
    bell = BellListener(queue._executor.client, BellSource(keys.bell))
    with source.client() as client:
        client.delete(keys.bell)
    with half_moved(cluster, cluster.empty[0]):
        bell.listen()
        assert eventually(bell.take_token)
        for _ in range(100):
            bell.listen()
            assert not bell.take_token()
        assert refusals(source)["ASK"] == 1
        bell._silent_until = 0.0
        assert eventually(lambda: listens(bell) and bell.take_token())
    assert refusals(source)["ASK"] == 2
    bell._silent_until = 0.0
    assert eventually(lambda: listens(bell) and is_blocked(source))
    queue._executor.execute(execute(queue._context.shards[0].ring()))
    assert eventually(bell.take_token)
    bell.close()


def listens(bell: BellListener) -> bool:
    bell.listen()
    return True


def is_blocked(server: RedisServer) -> bool:
    with server.client() as client:
        return bool(client.info("clients")["blocked_clients"])


def test_consumer_of_a_moving_slot_serves_other_shards_meanwhile(cluster: Cluster) -> None:
    """It starts to listen after the move has begun. That neither blocks the other shards nor makes it spin."""
    with Queue("many", url=cluster.url, shards=3) as queue:
        queue.send_many([Outgoing(n, id=str(n)) for n in range(60)])
        shards = queue._context.shards
        moving = next(scripts for scripts in shards[1:] if queue._context.shard("0") is not scripts)
        source, slot = cluster.owner(moving.keys.meta), tell(cluster.nodes[0], "KEYSLOT", moving.keys.meta)
        (target,) = cluster.empty
        tell(target, "SETSLOT", slot, "IMPORTING", cluster.id(source))
        tell(source, "SETSLOT", slot, "MIGRATING", cluster.id(target))
        with capture_logs() as lines:
            handled: list[str] = []
            consumer = Consumer(queue, lambda message: handled.append(message.id), concurrency=4)
            started = time.monotonic()
            consumer.start()
            others = {str(n) for n in range(60) if queue._context.shard(str(n)) is not moving}
            assert eventually(lambda: set(handled) >= others)
            assert eventually(lambda: time.monotonic() > started + 3)
            assert eventually(lambda: "ASK" in refusals(source))
            asked, seconds = refusals(source)["ASK"], time.monotonic() - started
            for node in (source, target):
                tell(node, "SETSLOT", slot, "STABLE")
            assert eventually(lambda: len(set(handled)) == 60)
            consumer.stop()
        assert asked < 50 * seconds
        assert not [line for line in lines if "cluster:// URL" in str(line)]


# -- nodes that die --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("queue")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_new_clients_can_start_while_a_master_is_unavailable(cluster: Cluster, how: signal.Signals) -> None:
    away = next(node for node in cluster.masters if node is not cluster.owner(META))
    if how == signal.SIGKILL:
        away.kill()
    else:
        os.kill(away.pid, how)
    try:
        with Queue("work", url=f"{cluster.url}?socket_timeout=0.3") as new:
            new.send("second")
            handled: list[str] = []
            consumer = Consumer(new, lambda message: handled.append(message.payload))
            consumer.start()
            assert eventually(lambda: sorted(handled) == ["first", "second"])
            consumer.stop()
    finally:
        if how == signal.SIGSTOP:
            os.kill(away.pid, signal.SIGCONT)


def test_cluster_that_is_not_set_up_yet_is_reported(start_server: StartServer) -> None:
    node = start_server(port=True, config={"cluster-enabled": "yes"})
    with Queue("work", url=f"redis+cluster://127.0.0.1:{node.port}") as queue:
        with pytest.raises(ServerError, match="no node of the cluster has a slot yet"):
            queue.send("x")
        tell(node, "ADDSLOTSRANGE", 0, 16383)
        assert eventually(lambda: is_served(queue))


def is_served(queue: Queue) -> bool:
    """Send a message. Return False if it is refused."""
    with contextlib.suppress(ServerError):
        return queue.send("x").created
    return False


def test_new_client_gets_an_error_when_no_master_is_available(cluster: Cluster) -> None:
    client = connect(cluster.url)
    for node in cluster.nodes:
        node.kill()
    with pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:\d+"):
        check_server(client)
    client.close()


def test_outage_of_a_shard_is_logged_when_it_starts_now_and_then_and_when_it_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.shard_outages.TELL_SECONDS", 600)
    with Queue("many", url=cluster.url, shards=9) as queue, capture_logs() as lines:
        queue.send_many([Outgoing(n) for n in range(9)])
        dead = cluster.masters[2]
        outside = {scripts.keys.meta for scripts in queue._context.shards if cluster.owner(scripts.keys.meta) is dead}
        dead.kill()

        def of(event: str) -> list[Any]:
            with contextlib.suppress(ServerUnreachable):  # perhaps the first call to meet it
                queue.receive(10)
            return [line for line in lines if line["event"] == event]

        away = "shard unavailable"
        assert eventually(lambda: len(of(away)) >= len(outside))
        for _ in range(20):
            of(away)
        assert sorted(line["shard"] for line in of(away)) == sorted(outside)
        outages = queue._context.outages._outages
        for outage in outages.values():
            outage.tell.now()
        assert eventually(lambda: len(of(away)) >= 2 * len(outside))
        assert sorted(line["shard"] for line in of(away) if line.get("untold", 0) > 0) == sorted(outside)
        dead.start()
        cluster.wait()
        back = "shard available again"
        assert eventually(lambda: len(of(back)) >= len(outside))
        assert sorted(line["shard"] for line in of(back)) == sorted(outside)


def test_consumer_continues_with_the_shards_of_the_remaining_nodes(cluster: Cluster) -> None:
    with Queue("many", url=cluster.url, shards=9) as queue:
        handled: list[int] = []
        consumer = Consumer(queue, lambda message: handled.append(message.payload), concurrency=4)
        consumer.start()
        queue.send_many([Outgoing(n) for n in range(90)])
        assert eventually(lambda: len(handled) == 90)
        dead = cluster.masters[2]
        assert cluster.owner(QueueKeys("delayq", "many").meta) is not dead, "the first shard holds the queue's record"
        served = [cluster.owner(scripts.keys.meta) is not dead for scripts in queue._context.shards]
        assert set(served) == {True, False}
        dead.kill()
        assert [reaches(queue, shard) for shard in range(9)] == served
        assert eventually(lambda: len(handled) == 90 + sum(served))
        dead.start()
        cluster.wait()
        queue.send_many([Outgoing(n) for n in range(200, 290)])
        assert eventually(lambda: len(set(handled) & set(range(200, 290))) == 90)
        consumer.stop()


def reaches(queue: Queue, shard: int) -> bool:
    """Send a message to a shard. Return False if the shard is not served."""
    id = next(each for n in range(1000) if shard_of(each := f"to-{n}", 9) == shard)
    with contextlib.suppress(ServerNotReady, ServerUnreachable):
        return queue.send(100 + shard, id=id).created
    return False


def test_calls_to_a_frozen_node_do_not_hold_up_other_answers(cluster: Cluster) -> None:
    with Queue("many", url=f"{cluster.url}?socket_timeout=4", shards=9) as queue:
        queue.send_many([Outgoing(n) for n in range(9)])
        frozen = cluster.masters[2]
        calls = [scripts.stats() for scripts in queue._context.shards]
        nodes = [cluster.owner(scripts.keys.meta) for scripts in queue._context.shards]
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            answers = queue._executor.run(calls, repeat=False)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)
        assert {isinstance(answer, ServerUnreachable) for answer in answers} == {True, False}
        assert [isinstance(answer, ServerUnreachable) for answer in answers] == [node is frozen for node in nodes]
        assert eventually(lambda: is_whole(queue._executor.run(calls)))  # it was unavailable a moment ago
        assert sum(answer.counts["pending"] + answer.counts["ready"] for answer in queue._executor.run(calls)) == 9


def is_whole(answers: list[Any]) -> bool:
    return not any(isinstance(answer, ServerError) for answer in answers)


def test_silent_node_is_waited_for_once(cluster: Cluster) -> None:
    with Queue("work", url=f"{cluster.url}?socket_timeout=4") as queue:
        for payload in "opens the queue", "brings the script of all later sends":
            queue.send(payload)
        node = cluster.owner(META)
        os.kill(node.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ServerNotReady, match="does not answer"):  # retried, but not sent again
                queue.send("second")
            with Stopwatch() as watch, pytest.raises(ServerNotReady, match="does not answer"):
                queue.send("third")
            assert watch.running < 4
        finally:
            os.kill(node.pid, signal.SIGCONT)
        assert eventually(lambda: is_sent(queue))
        assert queue.stats().sent == 4  # the second has arrived too: it waited in the node's socket


def test_claim_that_its_node_may_have_run_is_not_repeated(cluster: Cluster) -> None:
    with Queue("work", url=f"{cluster.url}?socket_timeout=2") as queue:
        queue.send_many([Outgoing(n) for n in range(40)])
        assert len(queue.receive(1)) == 1  # from here on, its node knows the scripts
        node = cluster.owner(META)
        os.kill(node.pid, signal.SIGSTOP)
        try:
            with pytest.raises(ServerUnreachable):
                queue.receive(1)
        finally:
            os.kill(node.pid, signal.SIGCONT)
        assert eventually(lambda: queue.stats().unack > 1)
        assert queue.stats().unack == 2


def test_lost_cluster_is_reported_and_found_again(cluster: Cluster, queue: Queue) -> None:
    for node in cluster.nodes:
        node.kill()
    with pytest.raises(ServerUnreachable):
        queue.send("x")
    for node in cluster.nodes:
        node.start()
    assert eventually(lambda: all(map(is_master, cluster.nodes)))
    assert eventually(lambda: is_sent(queue))
    with pytest.raises(ServerError, match="WRONGTYPE"):  # failures from here on have other reasons
        queue._executor.execute(execute(Command(STATS, ("ZRANGE", STATS, 0, -1), identity)))


def is_sent(queue: Queue) -> bool:
    try:
        return queue.send("x").created
    except (ServerNotReady, ServerUnreachable):  # the last look-up of the slots may have been in vain
        return False
