"""One master of a cluster is away while programs begin to use a topic: the shards of the others are served."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from delayq import Record, Topic, TopicConsumer, aio
from delayq.errors import ServerError, ServerNotReady
from tests.harness.dead_master import NAME, OWN_SLOTS, TopicScene
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster
from tests.harness.waiting import Stopwatch, eventually

pytestmark = pytest.mark.full

SHARDS = 6
SECONDS = 40.0  # a client that starts waits for a frozen node: up to 20 s
ACK_SECONDS = 3.0
AWAY = [("killed", False), ("killed", True), ("frozen", False), ("frozen", True)]
HANDLER = """
def note(record):
    with open("handled", "a") as file:
        file.write(f"{record.payload}\\n")
"""
StartServer = Callable[..., RedisServer]


@pytest.fixture
def cluster(start_server: StartServer) -> Cluster:
    """Three masters that serve their own slots without one another, and keep their data when they are killed."""
    return Cluster(start_server, config=OWN_SLOTS | {"appendonly": "yes"})


class Handled:
    """Counts the records that consumers of any kind handle."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "handled"
        self._file.touch()

    def note(self, record: Record) -> None:
        with self._file.open("a") as file:
            file.write(f"{record.payload}\n")

    @property
    def counts(self) -> Counter[str]:
        return Counter(self._file.read_text().split())


@contextmanager
def consuming(url: str, face: str, handled: Handled) -> Iterator[None]:
    """Run a consumer of the group g that begins with a client of its own."""
    if face == "sync":
        with Topic(NAME, url=url, shards=None) as topic:
            consumer = TopicConsumer(topic.group("g"), handled.note, ack_timeout=ACK_SECONDS)
            consumer.start()
            try:
                yield
            finally:
                consumer.stop()
        return
    began, ended = threading.Event(), threading.Event()

    async def handle(record: Record) -> None:
        handled.note(record)

    async def consume() -> None:
        async with aio.Topic(NAME, url=url, shards=None) as topic:
            consumer = aio.TopicConsumer(await topic.group("g"), handle, ack_timeout=ACK_SECONDS)
            await consumer.start()
            began.set()
            await asyncio.to_thread(ended.wait)
            await consumer.stop()

    thread = threading.Thread(target=asyncio.run, args=(consume(),))
    thread.start()
    try:
        assert began.wait(SECONDS)
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def processes(url: str, folder: Path) -> Iterator[None]:
    """Run the command line's consumers of the group g."""
    (folder / "bills.py").write_text(HANDLER)
    words = ["--topic", NAME, "--group", "g", "--ack-timeout", f"{ACK_SECONDS}s", "--processes", "2", "bills:note"]
    with subprocess.Popen([sys.executable, "-m", "delayq", "consume", "--url", url, *words], cwd=folder) as process:
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0


@pytest.mark.by_lot(4)
@pytest.mark.parametrize("face", ["sync", "async", "processes"])
@pytest.mark.parametrize(("how", "first"), AWAY)
def test_consumer_of_a_topic_starts_while_a_master_is_away(
    cluster: Cluster, how: str, first: bool, face: str, tmp_path: Path
) -> None:
    """It handles the records of healthy shards, and the others once the master is back, each of them once."""
    scene, handled = TopicScene(cluster, first, SHARDS), Handled(tmp_path)
    with Topic(NAME, url=scene.url, shards=SHARDS) as topic:
        topic.group("g")
        waiting, healthy, later = scene.ids(10, dead=True), scene.ids(10), scene.ids(10)
        for each in [*waiting, *healthy]:
            topic.publish(each, key=each)
        with ExitStack() as consumer:
            with scene.away(how):
                begun = processes(scene.url, tmp_path) if face == "processes" else consuming(scene.url, face, handled)
                consumer.enter_context(begun)
                assert eventually(lambda: handled.counts.keys() >= set(healthy), SECONDS if face == "processes" else 5)
                with Topic(NAME, url=scene.url, shards=None) as unaware:
                    for each in later:
                        unaware.publish(each, key=each)
                assert eventually(lambda: handled.counts.keys() >= set(later), 5)
            assert eventually(lambda: handled.counts.keys() >= set(waiting), SECONDS)
            time.sleep(ACK_SECONDS + 1)  # for consumers that would take over what is handled
        assert handled.counts == Counter([*waiting, *healthy, *later])
        assert topic.group("g").info().unacked == 0


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_new_group_needs_all_shards(cluster: Cluster, how: str, first: bool) -> None:
    """It would miss the records of a shard that is away."""
    scene = TopicScene(cluster, first, SHARDS)
    with Topic(NAME, url=scene.url, shards=SHARDS) as topic:
        topic.publish("x")
        with scene.away(how):
            cannot = "group new of topic work cannot be created without all shards"
            with Stopwatch() as watch, pytest.raises(ServerNotReady, match=cannot):
                topic.group("new")
            assert watch.running < 15
        assert eventually(lambda: is_joined(topic), SECONDS)
        assert [each.name for each in topic.groups()] == ["new"]


def is_joined(topic: Topic) -> bool:
    try:
        assert topic.groups() == [], "the refused one was made on some shards"
        topic.group("new")
    except ServerError:
        return False
    return True
