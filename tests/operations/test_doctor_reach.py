"""The doctor on many kinds of servers, shards, clusters and names, on large queues, and on queues in use."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue, StaleReceipt, backoff
from delayq.doctor import ServerHealth, examine
from delayq.protocol.command import Command
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.wounds import P, kinds, of_queue


def test_all_shards_are_examined_and_reported_separately(redis_client: redis.Redis):
    queue = Queue("many", redis=redis_client, shards=3)
    queue.send_many([Outgoing(n, id=f"m{n}", delay=60) for n in range(30)])
    for shard in queue._context.shards:
        redis_client.hincrby(shard.keys.stats, "sent", 1)
    report = examine(Queue("many", redis=redis_client, shards=None), repair=True)
    assert (report.shards, report.messages) == (3, 30)
    assert [finding.text[:8] for finding in of_queue(report)] == ["shard 0:", "shard 1:", "shard 2:"]


def test_message_in_the_wrong_shard_is_found(redis_client: redis.Redis):
    queue = Queue("many", redis=redis_client, shards=2)
    queue.send("x", id="m", delay=60)
    home = queue._context.shard("m")
    (other,) = [shard for shard in queue._context.shards if shard is not home]
    for name in ("pending", "stats", "msg:m"):
        base = home.keys.message_prefix[:-4], other.keys.message_prefix[:-4]
        redis_client.rename(base[0] + name, base[1] + name)
    assert kinds(examine(queue, repair=True)) == {("shard", "m")}


@pytest.mark.parametrize("name", ["a*", "a?", "[a-z]", "a\\*", "a]", "été ☃"])
def test_pattern_characters_in_a_name_are_literal(redis_client: redis.Redis, name: str):
    queue, neighbour = Queue(name, redis=redis_client), Queue("ab", redis=redis_client)
    for each in (queue, neighbour):
        each.send("x", delay=60, id="a")
        redis_client.set(each._context.shards[0].keys.message("stray"), "?")
    assert {("orphan", "stray")} < kinds(examine(queue, repair=True))
    assert of_queue(examine(queue)) == []
    assert kinds(examine(neighbour)) == {("orphan", "stray")}


# -- servers -----------------------------------------------------------------------------------------------------------


def test_server_that_can_lose_messages_gives_a_warning(start_server: StartServer):
    config = {"maxmemory-policy": "allkeys-lru", "maxmemory": "800kb", "lua-time-limit": "50"}
    with start_server(config=config).client() as client:
        report = examine(Queue("jobs", redis=client))
    assert report.healthy
    assert {finding.kind for finding in report.warnings} == {"policy", "persistence", "memory", "script-limit"}
    (server,) = report.servers
    assert (server.maxmemory_policy, server.maxmemory, server.script_limit_ms) == ("allkeys-lru", 819_200, 50)


def test_server_that_writes_to_disk_gives_no_warning(own_server: Any):
    with own_server.client() as client:
        assert examine(Queue("jobs", redis=client)).findings == []


def test_queue_is_examined_even_if_server_settings_are_not_readable(redis_client: redis.Redis, redis_server: Any):
    redis_client.acl_setuser(
        "worker", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-info", "-config"]
    )
    with redis_server.client(username="worker", password="") as client:
        report = examine(Queue("jobs", redis=client))
    assert report.findings == []
    found = {name for name in ServerHealth.__slots__ if getattr(report.servers[0], name) is not None}
    assert found == {"clock_offset"}
    redis_client.acl_deluser("worker")


SERVERS_TIME = 1_700_000_000


@pytest.mark.parametrize(("offset", "found"), [(0.0, []), (0.9, []), (1.5, ["behind"]), (-1.5, ["ahead of"])])
def test_clock_of_the_server_is_compared_with_the_local_clock(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, offset: float, found: list[str]
):
    queue = Queue("jobs", redis=redis_client)
    run = queue._executor.run

    def answer(calls: Sequence[Command[Any]], repeat: bool = True) -> list[Any]:
        replies = zip(calls, run(calls, repeat), strict=True)
        return [(SERVERS_TIME, 0) if call.args[0] == "TIME" else reply for call, reply in replies]

    monkeypatch.setattr(queue._executor, "run", answer)  # otherwise the time that the question takes would count
    monkeypatch.setattr("delayq.operations.doctor.server.time.time", lambda: SERVERS_TIME + offset)
    clocks = [finding for finding in examine(queue).warnings if finding.kind == "clock"]
    assert [finding.text for finding in clocks] == [
        f"the server's clock is 1.5s {each} this machine's" for each in found
    ]


# -- live, large, spread -----------------------------------------------------------------------------------------------


def live(queue: Queue, stop: threading.Event) -> None:
    """Do everything that can be done with messages, until told to stop."""
    chance = random.Random(1)
    while not stop.is_set():
        queue.send_many([Outgoing(n, delay=chance.choice([0, 0, 0.01])) for n in range(20)])
        queue.send("again", id="same", on_conflict=chance.choice(["ignore", "replace"]))
        queue.cancel("same")
        for message in queue.receive(20, lease=chance.choice([0.001, 30])):
            ways: list[Callable[[], object]] = [message.ack, message.ack, message.nack, message.release, message.reject]
            with contextlib.suppress(StaleReceipt):
                chance.choice(ways)()
        queue.dead.requeue()
        queue.purge(chance.choice(["pending", "ready", "retry", "dead"]))


def test_queue_in_use_is_always_healthy(redis_server: RedisServer):
    stop = threading.Event()
    with ThreadPoolExecutor(4) as pool, redis_server.client() as client:
        queue = Queue("jobs", redis=client, backoff=backoff.fixed(0))
        running = [pool.submit(live, queue, stop) for _ in range(4)]
        reports = [examine(queue, repair=True) for _ in range(25)]
        stop.set()
        for each in running:
            each.result()
        assert [finding for report in reports for finding in of_queue(report)] == []
        assert sum(report.messages for report in reports) > 0
        stats = queue.stats()
        assert (stats.missing, stats.adjusted) == (0, 0)
        assert stats.delivered > 100


def test_repair_of_a_queue_in_use_harms_no_other_message(redis_server: RedisServer):
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool, redis_server.client() as client:
        queue = Queue("jobs", redis=client, backoff=backoff.fixed(0))
        running = [pool.submit(live, queue, stop) for _ in range(2)]
        queue.send_many([Outgoing("x", id=f"wounded-{n}", delay=3600) for n in range(300)])
        for n in range(300):  # the other threads purge them too: the damaged message may be gone by then
            client.zadd(P + "dead", {f"wounded-{n}": 1}, xx=True)
            client.delete(P + f"msg:wounded-{n}")
        while examine(queue, repair=True).errors:
            pass
        stop.set()
        for each in running:
            each.result()
        examine(queue, repair=True)
        assert of_queue(examine(queue)) == []
        assert queue.stats().missing == 0


class Spy:
    """Records how much each round trip of a queue asks for and returns."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_words = self.most_bytes = 0
        self._run = queue._executor.run
        monkeypatch.setattr(queue._executor, "run", self.run)

    def run(self, calls: Sequence[Command[Any]], repeat: bool = True) -> list[Any]:
        results = self._run(calls, repeat)
        self.most_words = max(self.most_words, *(len(call.args) for call in calls))
        brought = [each for result in results if isinstance(result, list) for each in result if isinstance(each, bytes)]
        self.most_bytes = max(self.most_bytes, sum(map(len, brought)))
        return results


def test_large_queue_is_examined_in_small_pieces(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    queue = Queue("jobs", redis=redis_client)
    queue.send_many([Outgoing("x", id=f"m{n}", delay=3600) for n in range(5000)])
    redis_client.delete(P + "msg:m77", P + "msg:m4999")
    redis_client.zrem(P + "pending", "m1000")
    spy = Spy(queue, monkeypatch)
    report = examine(queue)
    assert kinds(report) == {
        ("payload-missing", "m77"),
        ("payload-missing", "m4999"),
        ("orphan", "m1000"),
        ("books", None),
    }
    assert (report.messages, report.total) == (4999, 4999)
    assert spy.most_words < 2 * 500


def test_large_payloads_are_read_a_few_at_a_time(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
    queue = Queue("jobs", redis=redis_client, max_payload=5 * 2**20)
    queue.send_many([Outgoing(b"x" * 2**20, delay=3600) for _ in range(12)])
    queue.send(b"x" * 5 * 2**20, delay=3600)
    spy = Spy(queue, monkeypatch)
    assert of_queue(examine(queue)) == []
    assert 5 * 2**20 < spy.most_bytes < 5 * 2**20 + 1000


@pytest.mark.full
@pytest.mark.parametrize("shards", [1, 5])
def test_queue_on_a_cluster_is_examined_and_repaired(cluster_url: str, shards: int):
    with Queue("jobs", url=cluster_url, shards=shards) as queue:
        queue.send_many([Outgoing(n, id=f"m{n}", delay=3600) for n in range(50)])
        client: Any = queue._executor.client
        for n in (1, 2, 3):
            assert client.execute_command("ZREM", queue._context.shard(f"m{n}").keys.pending, f"m{n}") == 1
        report = examine(queue)
        assert kinds(report) >= {("orphan", f"m{n}") for n in (1, 2, 3)}
        assert report.messages == 47
        assert len(report.servers) == len({server.run_id for server in report.servers}) == min(shards, 3)
        assert examine(queue, repair=True).healthy
        assert of_queue(examine(queue)) == []
