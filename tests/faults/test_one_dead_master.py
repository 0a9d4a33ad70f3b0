"""One master of a cluster is unavailable: the shards of the others are served as before.

Times are compared with those before the outage, as other work may slow the machine down.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from structlog.testing import capture_logs

from delayq import Consumer, Message, NewRecord, Outgoing, Queue, Record, Topic, TopicConsumer, aio
from delayq.errors import ServerError, ServerNotReady, ServerUnreachable, ShardsMismatch
from delayq.model.placement import shard_of
from delayq.operations import claim, open_messages
from delayq.operations.doctor.examine import examine
from delayq.operations.doctor.report import silent
from delayq.protocol.queue_keys import QueueKeys
from delayq.protocol.topic_keys import TopicKeys
from delayq.runtime.bells import Bells
from delayq.runtime.bells_async import Bells as BellsAsync
from delayq.runtime.engine import ConsumerEngine
from delayq.transport.bell_source import BellSource, Listener
from tests.harness.dead_master import NAME, OWN_SLOTS, Scene, consuming
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster, tell
from tests.harness.waiting import Stopwatch, eventually

pytestmark = pytest.mark.full

SHARDS = 12
LATE = 0.05  # seconds: of messages on healthy shards; an outage once made it 4 s
FACTOR = 3  # for a machine under load, where even healthy clusters are later than that
StartServer = Callable[..., RedisServer]


@pytest.fixture
def cluster(start_server: StartServer) -> Cluster:
    """Three masters that serve their own slots without one another; a call to a silent one ends after 5 s."""
    return Cluster(start_server, config=OWN_SLOTS)


@pytest.mark.by_lot(3)
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize(("how", "first"), [("killed", False), ("frozen", False), ("killed", True), ("frozen", True)])
def test_healthy_shards_are_served_as_before_while_a_master_is_away(
    cluster: Cluster, how: str, first: bool, face: str
) -> None:
    scene = Scene(cluster, first)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue, capture_logs() as lines:
        queue.send("warm up", id=scene.ids(1)[0])
        with consuming(scene, face):
            late, seconds = scene.lateness(queue), scene.seconds(queue)
            with scene.away(how):
                assert scene.lateness(queue) <= max(LATE, FACTOR * late)
                assert scene.seconds(queue) <= max(1.0, FACTOR * seconds)
            waiting = scene.ids(5, dead=True)
            for each in waiting:
                assert eventually(partial(is_sent, queue, each))
            with Stopwatch() as back:
                assert eventually(lambda: scene.handled.keys() >= set(waiting))
            assert back.running <= max(5.0, FACTOR * seconds)
    logged = [line["shard"] for line in lines if line["event"] == "shard unavailable"]
    assert len(logged) == len(set(logged)), "an outage is logged once a minute"
    assert not [line for line in lines if line["event"] in {"recovery failed", "upkeep failed"}]


def is_sent(queue: Queue, id: str) -> bool:
    with contextlib.suppress(ServerError):
        queue.send("x", id=id)
        return True
    return False


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_sends_to_a_dead_master_fail_at_once_after_the_first(cluster: Cluster, how: str) -> None:
    """Those to others, alone or in a list with them, are stored meanwhile."""
    scene = Scene(cluster, first=False)
    with Queue(NAME, url=f"{cluster.url}?socket_timeout=1", shards=SHARDS) as queue:
        queue.send("x", id=scene.ids(1)[0])
        with scene.away(how):
            (first,) = scene.ids(1, dead=True)
            with pytest.raises((ServerNotReady, ServerUnreachable), match=f":{scene.dead.port}|Timeout"):
                queue.send("x", id=first)
            healthy = scene.ids(200)
            with Stopwatch() as watch:
                for each in scene.ids(20, dead=True):
                    with pytest.raises(ServerNotReady, match=f":{scene.dead.port}"):
                        queue.send("x", id=each)
            assert watch.running < 20 * 0.6, "each once took 1.3 s"
            mixed = [*scene.ids(1, dead=True), *healthy]
            with pytest.raises(ServerNotReady):
                queue.send_many([Outgoing("x", id=each) for each in mixed])
            assert all(queue.get(each) for each in healthy)


def test_records_for_other_masters_are_published_before_the_error_of_a_dead_one(cluster: Cluster) -> None:
    records = [NewRecord(number, key=f"k{number}") for number in range(3000)]
    owners = [cluster.owner(TopicKeys.of_topic("delayq", "orders", shard).stream) for shard in range(SHARDS)]
    dead = owners[0]
    healthy = [number for number in range(3000) if owners[shard_of(f"k{number}", SHARDS)] is not dead]
    with Topic("orders", url=cluster.url, shards=SHARDS) as topic:
        topic.publish("x", key="k0")
        dead.kill()
        with pytest.raises((ServerNotReady, ServerUnreachable), match=f"at least {len(healthy):,} of 3,000 records"):
            topic.publish_many(records)
        dead.start()
        cluster.wait()
        found = [record.payload for record in topic.range(count=10_000) if record.payload != "x"]
        assert sorted(found) == healthy


@pytest.mark.parametrize("face", ["sync", "async"])
def test_consumer_that_starts_while_the_first_shard_is_away_serves_the_others(cluster: Cluster, face: str) -> None:
    scene = Scene(cluster, first=True)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue:
        queue.send("warm up", id=scene.ids(1)[0])
        with scene.away("killed"):
            with consuming(scene, face):
                scene.lateness(queue, 5)
            with Queue(NAME, url=scene.url, shards=None) as unaware, Queue(NAME, url=scene.url, shards=3) as mistaken:
                assert len(unaware.send_many([Outgoing("x", id=each) for each in scene.ids(20)])) == 20
                with pytest.raises(ShardsMismatch, match=f"shards={SHARDS}"):
                    mistaken.send("x")
        assert eventually(lambda: queue.stats().sent >= 26)


def test_client_of_either_api_starts_whichever_master_is_away(cluster: Cluster) -> None:
    """The async client of redis-py asks the first master for its commands."""

    async def send(id: str) -> None:
        async with aio.Queue(NAME, url=cluster.url, shards=SHARDS) as queue:
            await queue.send("x", id=id)

    with Queue(NAME, url=cluster.url, shards=SHARDS) as queue:
        queue.send("warm up")
    for master in cluster.masters:
        scene = Scene(cluster, dead=master)
        first, second = scene.ids(2)
        with scene.away("killed"):
            with Queue(NAME, url=cluster.url, shards=SHARDS) as queue:
                queue.send("x", id=first)
            asyncio.run(send(second))


def test_record_stays_valid_while_the_first_shard_is_away(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its data were not lost: nothing says so when it is back."""
    monkeypatch.setattr("delayq.operations.queue_context.LOOK_SECONDS", 0.0)
    scene = Scene(cluster, first=True)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue, capture_logs() as lines:
        queue.send("warm up", id=scene.ids(1)[0])
        with scene.away("frozen"):
            for each in scene.ids(3):
                assert queue.send("x", id=each).created
        assert eventually(lambda: is_sent(queue, scene.ids(1, dead=True)[0]))
    assert not [line for line in lines if "lost" in line["event"]]


@contextlib.contextmanager
def away_in_fetch(scene: Scene, how: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let the master be away from the moment when it has handed out a message; the event says that it is."""
    gone, fetch = threading.Event(), open_messages.open_messages

    def opened(context: Any, make: Any, claimed: Any, envelopes: Any) -> Any:
        if context.shards.index(claimed.scripts) in scene.dead_shards and not gone.is_set():
            stack.enter_context(scene.away(how))
            gone.set()
        return fetch(context, make, claimed, envelopes)

    with contextlib.ExitStack() as stack, monkeypatch.context() as patch:
        patch.setattr(claim, "open_messages", opened)
        yield gone


def turns_in(seconds: float, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many turns the consumers of this process take meanwhile."""
    taken, turn = list[None](), ConsumerEngine._turn

    def counted(engine: Any) -> Any:
        taken.append(None)
        return turn(engine)

    with monkeypatch.context() as patch:
        patch.setattr(ConsumerEngine, "_turn", counted)
        time.sleep(seconds)
    return len(taken)


@pytest.mark.by_lot(3)
@pytest.mark.parametrize("face", ["sync", "async"])
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_consumer_without_work_sleeps_while_a_master_is_away(
    cluster: Cluster, how: str, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(cluster, first=False)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue, consuming(scene, face):
        queue.send("warm up", id=scene.ids(1)[0])
        with scene.away(how):  # noticed after 5 s at most; for a second from then on, the master is asked often
            assert eventually(lambda: turns_in(3, monkeypatch) <= 15), "there were 36 a second"


@pytest.mark.parametrize("face", ["sync", "async"])
def test_message_whose_master_is_away_before_it_is_fetched_keeps_nobody_busy_and_loses_no_attempt(
    cluster: Cluster, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(cluster, first=False)
    (waiting,) = scene.ids(1, dead=True)
    with Queue(NAME, url=scene.url, shards=SHARDS, max_retries=0) as queue, consuming(scene, face, lease=4):
        queue.send("warm up", id=scene.ids(1)[0])
        with away_in_fetch(scene, "frozen", monkeypatch) as gone:
            queue.send("x", id=waiting, delay=0.5)
            assert gone.wait(120)
            time.sleep(1.5)
            assert turns_in(3, monkeypatch) <= 15, "there were 200 a second"
            time.sleep(1.5)  # the lease is over
        assert eventually(lambda: waiting in scene.handled)
        assert queue.stats().lease_lost == 0


def test_receive_does_not_wait_for_a_message_whose_master_is_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = Scene(cluster, first=False)
    (waiting,) = scene.ids(1, dead=True)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue:
        queue.send("x", id=waiting)
        with away_in_fetch(scene, "frozen", monkeypatch) as gone:
            with Stopwatch() as watch:
                assert queue.receive(10) == []
            assert gone.is_set()
            assert watch.running < 4, "it took a quarter of the lease"
        assert receive_all(queue, [waiting])[waiting].attempt == 1


@pytest.mark.parametrize("face", ["sync", "async"])
def test_bells_of_a_frozen_master_wait_for_it_once(
    cluster: Cluster, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them connects on its own, and a connection to it is accepted, so a consumer would wait many times."""
    scene, waited, real = Scene(cluster, first=False), list[str](), Listener._note_silence

    def note_silence(listener: Listener, error: Exception) -> None:
        waited.append(listener.source.key)
        real(listener, error)

    async def listen() -> None:
        async with aio.Queue(NAME, url=scene.url, shards=SHARDS) as queue:
            await queue.stats()
            bells = BellsAsync(queue._executor)
            with scene.away("frozen"):
                await bells.listen(sources)
            await bells.close()

    monkeypatch.setattr(Listener, "_note_silence", note_silence)
    sources = [BellSource(QueueKeys("delayq", NAME, shard).bell) for shard in range(SHARDS)]
    if face == "async":
        asyncio.run(listen())
    else:
        with Queue(NAME, url=scene.url, shards=SHARDS) as queue:
            queue.stats()
            bells = Bells(queue._executor)
            with scene.away("frozen"):
                bells.listen(sources)
            bells.close()
    assert len(scene.dead_shards) > 1
    assert len(waited) == 1


@pytest.mark.parametrize("face", ["sync", "async"])
def test_master_that_stays_away_after_an_outage_of_all_does_not_stop_the_others(cluster: Cluster, face: str) -> None:
    """A message on it still runs, so its lease cannot be renewed first."""
    scene = Scene(cluster, first=False)
    (long,) = scene.ids(1, dead=True)
    ended = threading.Event()
    scene.waits[long] = ended
    others = [each for each in cluster.masters if each is not scene.dead]
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue, consuming(scene, face):
        queue.send("x", id=long)
        assert eventually(lambda: queue.stats().unack == 1)
        with scene.away("frozen"):
            for each in others:
                os.kill(each.pid, signal.SIGSTOP)
            time.sleep(7)
            for each in others:
                os.kill(each.pid, signal.SIGCONT)
            healthy = scene.ids(5)
            for id in healthy:
                assert eventually(partial(is_sent, queue, id))
            assert eventually(lambda: scene.handled.keys() >= set(healthy), 15)
        ended.set()
        assert eventually(lambda: queue.stats().acked == 6)


def test_topic_goes_on_if_a_master_stays_away_after_an_outage_of_all(cluster: Cluster) -> None:
    """A record on it is still handled, so its lease cannot be renewed first."""
    handled, ends = set[str](), threading.Event()

    def handle(record: Record) -> None:
        if record.payload == "long":
            ends.wait()
        handled.add(record.payload)

    with Topic(NAME, url=f"{cluster.url}?socket_timeout=5", shards=3) as topic:
        begun = topic.publish("long")
        dead = cluster.owner(topic._context.shards[topic.range()[0].shard].keys.stream)
        consumer = TopicConsumer(topic.group("g", start="0"), handle, concurrency=4, ack_timeout=30)
        consumer.start()
        try:
            assert eventually(lambda: topic.group("g").info().unacked == 1, 30), begun
            for each in cluster.masters:
                os.kill(each.pid, signal.SIGSTOP)
            time.sleep(7)
            try:
                for each in cluster.masters:
                    if each is not dead:
                        os.kill(each.pid, signal.SIGCONT)
                sent, wanted = 0, set[str]()
                while len(wanted) < 5:
                    sent += 1
                    with contextlib.suppress(ServerError):
                        topic.publish(f"{sent}")
                        wanted.add(f"{sent}")
                assert eventually(lambda: handled >= wanted, 15)
            finally:
                os.kill(dead.pid, signal.SIGCONT)
            ends.set()
            assert eventually(lambda: "long" in handled, 30)
        finally:
            ends.set()
            consumer.stop()


def test_shard_without_an_owner_does_not_stop_the_others(cluster: Cluster) -> None:
    scene = Scene(cluster, first=False)
    slots = [tell(cluster.masters[0], "KEYSLOT", QueueKeys("delayq", NAME, each).meta) for each in scene.dead_shards]
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue:
        queue.send("warm up", id=scene.ids(1)[0])
        with consuming(scene, "sync"):
            late = scene.lateness(queue)
            for node in cluster.nodes:
                tell(node, "DELSLOTS", *slots)
            assert scene.lateness(queue) <= max(LATE, FACTOR * late)
            for node in cluster.nodes:
                for slot in slots:
                    tell(node, "SETSLOT", slot, "NODE", cluster.id(scene.dead))
            waiting = scene.ids(3, dead=True)
            for each in waiting:
                assert eventually(partial(is_sent, queue, each))
            assert eventually(lambda: scene.handled.keys() >= set(waiting))


def test_outcomes_for_a_frozen_master_are_settled_when_it_is_back(cluster: Cluster) -> None:
    """They wait by themselves; nothing is settled twice, nothing runs twice."""
    scene, go = Scene(cluster, first=False), threading.Event()
    runs: list[str] = []

    def handle(message: Message) -> None:
        runs.append(message.id)
        if message.payload == "wait":
            go.wait(60)
        scene.note(message)

    with Queue(NAME, url=scene.url, shards=SHARDS) as queue, capture_logs() as lines:
        held, others = scene.ids(2, dead=True), scene.ids(20)
        queue.send_many([Outgoing("wait", id=each) for each in held])
        consumer = Consumer(queue, handle, concurrency=4)
        consumer.start()
        assert eventually(lambda: len(runs) == 2)
        with scene.away("frozen"):
            go.set()
            assert eventually(lambda: len(scene.handled) == 2)
            queue.send_many([Outgoing("x", id=each) for each in others])
            assert eventually(lambda: scene.handled.keys() >= set(others))
        assert eventually(lambda: all_acked(queue, 22))
        consumer.stop()
    assert sorted(runs) == sorted([*held, *others])
    assert not [line for line in lines if line["event"] == "outcome refused"]


def all_acked(queue: Queue, count: int) -> bool:
    with contextlib.suppress(ServerError):
        stats: Any = queue.stats()
        return bool(stats.acked == count and stats.unack == 0)
    return False


def test_leases_on_healthy_shards_are_renewed_while_a_master_is_frozen(cluster: Cluster) -> None:
    scene = Scene(cluster, first=False)
    runs: list[str] = []

    def handle(message: Message) -> None:
        runs.append(message.id)
        time.sleep(8)

    with Queue(NAME, url=scene.url, shards=SHARDS, lease=3) as queue, capture_logs() as lines:
        ids = scene.ids(4)
        queue.send_many([Outgoing("x", id=each) for each in ids])
        consumer = Consumer(queue, handle, concurrency=4)
        consumer.start()
        assert eventually(lambda: len(runs) == 4)
        with scene.away("frozen"):
            time.sleep(8)
        assert eventually(lambda: all_acked(queue, 4))
        consumer.stop()
    assert sorted(runs) == sorted(ids)
    assert not [line for line in lines if line["event"] in {"lease lost", "outcome refused"}]


def test_receive_takes_messages_of_healthy_shards_while_a_master_is_frozen(cluster: Cluster) -> None:
    """A claim that it answers late is not lost: the receiver takes its messages later, on their first attempt."""
    scene = Scene(cluster, first=False)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue:
        dead, healthy = scene.ids(3, dead=True), scene.ids(10)
        assert queue.receive(1) == []
        queue.send_many([Outgoing("x", id=each) for each in [*dead, *healthy]])
        with scene.away("frozen"):
            with Stopwatch() as watch:
                found = receive_all(queue, healthy)
            assert watch.running < 4, "it once waited 5 s for each shard"
        found |= receive_all(queue, dead)
        assert {message.attempt for message in found.values()} == {1}
        assert queue.ack(list(found.values())) == [True] * 13


@pytest.mark.parametrize("face", ["sync", "async"])
def test_receive_does_not_say_that_there_is_nothing_while_a_frozen_master_may_hand_out_a_message(
    cluster: Cluster, face: str
) -> None:
    """The program might end then, and the message would lose an attempt."""
    scene = Scene(cluster, first=False)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue, asyncio.Runner() as runner:
        queue.send("warm up", delay=3600)
        other: Any = (aio.Queue if face == "async" else Queue)(NAME, url=scene.url, shards=SHARDS)

        def do(call: Callable[..., Any], *args: Any) -> Any:
            async def awaited() -> Any:
                return await call(*args)

            return runner.run(awaited()) if face == "async" else call(*args)

        try:
            assert do(other.receive, 1) == []
            queue.send("x", id=scene.ids(1, dead=True)[0], delay=0.5)
            with scene.away("frozen"):
                time.sleep(0.5)
                with pytest.raises(ServerUnreachable, match="has not answered yet"):
                    do(other.receive, 1)
            (message,) = do(other.receive, 1, 10)
            assert message.attempt == 1
        finally:
            do(other.close)


def receive_all(queue: Queue, ids: list[str]) -> dict[str, Message]:
    found: dict[str, Message] = {}

    def receive() -> bool:
        with contextlib.suppress(ServerError):
            found.update((message.id, message) for message in queue.receive(20))
        return found.keys() >= set(ids)

    assert eventually(receive)
    return found


def test_consumers_and_the_doctor_report_while_the_first_shard_is_away(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delayq.operations.presence.SECONDS", 0.2)
    scene = Scene(cluster, first=True)
    with Queue(NAME, url=scene.url, shards=SHARDS) as queue:
        queue.send("warm up", id=scene.ids(1)[0])
        with consuming(scene, "sync"):
            assert eventually(lambda: len(queue.consumers()) == 1)
            (before,) = queue.consumers()
            with scene.away("killed"):
                assert eventually(lambda: is_seen_after(queue, before.seen_at))
                report = queue.execute(examine, False, silent)
                assert [each.kind for each in report.findings].count("unavailable") == len(scene.dead_shards)
            assert eventually(lambda: is_sent(queue, scene.ids(1, dead=True)[0]))
            assert eventually(lambda: is_seen_after(queue, before.seen_at))


def is_seen_after(queue: Queue, moment: Any) -> bool:
    with contextlib.suppress(ServerError):
        return any(each.seen_at > moment for each in queue.consumers())
    return False
