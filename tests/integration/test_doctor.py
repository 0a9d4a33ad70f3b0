"""The doctor finds what is wrong with a queue, says nothing of what is right, and repairs what can be."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue, StaleReceipt, backoff
from delayq.calls import Call
from delayq.doctor import Finding, Report, Server, Step, examine
from delayq.keys import STATES
from tests.conftest import StartServer
from tests.integration.test_topologies import cluster_url  # noqa: F401  # a fixture
from tests.servers import RedisServer

P = "delayq:{jobs}:"
NOW = 1_700_000_000_000

Wound = Callable[[redis.Redis], object]


@pytest.fixture
def now() -> list[float]:
    return [NOW]


@pytest.fixture
def queue(redis_client: redis.Redis, now: list[float]) -> Iterator[Queue]:
    """A queue with a message in each state, named for it."""
    with Queue("jobs", redis=redis_client, clock=lambda: now[0], max_retries=9) as queue:
        queue.send_many([Outgoing(state, id=state) for state in ("unack", "retry", "dead", "garbage", "released")])
        messages = {message.id: message for message in queue.receive()}
        queue.send("pending", delay=60, id="pending")
        messages["retry"].nack(60, "it broke")
        messages["dead"].reject("of no use", "it broke")
        queue.cancel("garbage")
        messages["garbage"].release()
        messages["released"].release()
        yield queue


def of_queue(report: Report) -> list[Finding]:
    """The findings that are not about the server of the tests, which keeps nothing on disk."""
    return [finding for finding in report.findings if finding.kind != "persistence"]


def kinds(report: Report) -> set[tuple[str, str | None]]:
    return {(finding.kind, finding.id) for finding in of_queue(report)}


def states(client: redis.Redis) -> dict[str, str]:
    ids: dict[Any, Any] = {state: client.zrange(P + state, 0, -1) for state in STATES}
    return {message_id.decode(): state for state in STATES for message_id in ids[state]}


def test_queue_in_which_all_is_well_is_healthy(queue: Queue, redis_client: redis.Redis):
    before = states(redis_client)
    assert sorted(set(before.values())) == sorted(STATES)
    report = examine(queue, repair=True)
    assert (report.healthy, of_queue(report), report.messages, report.shards) == (True, [], 6, 1)
    assert states(redis_client) == before


def test_queue_that_was_never_used_is_healthy_and_stays_unrecorded(redis_client: redis.Redis):
    report = examine(Queue("none", redis=redis_client), repair=True)
    assert (report.healthy, of_queue(report), report.messages, report.shards) == (True, [], 0, 1)
    assert redis_client.keys("*") == []


# What is done to the queue, what the doctor calls it, and where the message is after the repair.
WOUNDS: dict[str, tuple[Wound, str, str | None, str | None]] = {
    "in-two-structures": (lambda r: r.zadd(P + "dead", {"pending": NOW}), "duplicate", "pending", "pending"),
    "runs-and-waits": (lambda r: r.zadd(P + "ready", {"unack": NOW}), "duplicate", "unack", "unack"),
    "payload-of-pending-gone": (lambda r: r.delete(P + "msg:pending"), "payload-missing", "pending", "dead"),
    "payload-of-ready-gone": (lambda r: r.delete(P + "msg:released"), "payload-missing", "released", "dead"),
    "payload-of-retry-gone": (lambda r: r.delete(P + "msg:retry"), "payload-missing", "retry", "dead"),
    "payload-of-dead-gone": (lambda r: r.delete(P + "msg:dead"), "payload-missing", "dead", "dead"),
    "payload-empty": (lambda r: r.delete(P + "msg:pending"), "payload-missing", "pending", "dead"),
    "in-no-structure": (lambda r: r.zrem(P + "pending", "pending"), "orphan", "pending", "dead"),
    "stray-payload": (lambda r: r.set(P + "msg:stray", "?"), "orphan", "stray", "dead"),
    "attempts-of-nobody": (lambda r: r.hset(P + "attempts", "x", "1.0.0.0"), "leftover", "x", None),
    "error-of-nobody": (lambda r: r.hset(P + "errors", "x", "E"), "leftover", "x", None),
    "reason-of-nobody": (lambda r: r.hset(P + "reasons", "x", "R"), "leftover", "x", None),
    "cancellation-of-nobody": (lambda r: r.sadd(P + "cancelled", "x"), "leftover", "x", None),
    "reason-of-the-living": (lambda r: r.hset(P + "reasons", "pending", "R"), "leftover", "pending", "pending"),
    "cancellation-of-waiting": (lambda r: r.sadd(P + "cancelled", "retry"), "leftover", "retry", "retry"),
    "attempts-of-garbage": (lambda r: r.hset(P + "attempts", "garbage", "1.0.0.0"), "leftover", "garbage", "garbage"),
    "unreadable-attempts": (lambda r: r.hset(P + "attempts", "retry", "many"), "attempts", "retry", "retry"),
    "due-never": (lambda r: r.zadd(P + "pending", {"pending": "inf"}), "score", "pending", "pending"),
    "due-before-time": (lambda r: r.zadd(P + "retry", {"retry": -1}), "score", "retry", "retry"),
    "lease-of-years": (lambda r: r.zadd(P + "unack", {"unack": NOW * 2}), "score", "unack", "unack"),
    "vanished": (lambda r: r.zrem(P + "pending", "pending") + r.delete(P + "msg:pending"), "books", None, None),
    "miscounted": (lambda r: r.hincrby(P + "stats", "acked", 2), "books", None, None),
    "unrecorded": (lambda r: r.hdel(P + "meta", "shards"), "meta", None, None),
}


@pytest.mark.parametrize("name", WOUNDS)
def test_wound_is_found_and_healed_and_nothing_else_changes(queue: Queue, redis_client: redis.Redis, name: str):
    wound, kind, message_id, healed = WOUNDS[name]
    unhurt = states(redis_client)
    wound(redis_client)
    wounded = redis_client.dbsize(), states(redis_client)
    for _ in range(2):
        report = examine(queue)
        assert (kind, message_id) in kinds(report)
        assert not report.healthy
    assert (redis_client.dbsize(), states(redis_client)) == wounded
    report = examine(queue, repair=True)
    assert report.healthy
    assert (kind, message_id) in kinds(report)
    assert all(finding.repaired for finding in of_queue(report))
    if message_id is not None:
        assert states(redis_client).get(message_id) == healed
    others = {each: state for each, state in unhurt.items() if each != (message_id or "pending")}
    assert {each: state for each, state in states(redis_client).items() if each in others} == others
    assert of_queue(examine(queue)) == []
    assert queue.stats().missing == 0


@pytest.mark.parametrize("state", ["pending", "ready", "retry"])
def test_message_that_was_put_among_the_dead_letters_can_be_purged_or_sent_anew(
    queue: Queue, redis_client: redis.Redis, state: str
):
    message_id = {"ready": "released"}.get(state, state)
    redis_client.delete(P + "msg:" + message_id)
    examine(queue, repair=True)
    (letter,) = [letter for letter in queue.dead.list() if letter.id == message_id]
    assert letter.reason == "payload-missing"
    assert queue.dead.requeue(message_id) == 0
    assert queue.send("anew", id=message_id, on_conflict="replace").created is False
    assert of_queue(examine(queue)) == []


def test_orphan_is_brought_back_by_a_requeue(queue: Queue, redis_client: redis.Redis):
    redis_client.zrem(P + "pending", "pending")
    examine(queue, repair=True)
    assert queue.dead.requeue("pending") == 1
    assert [message.payload for message in queue.receive() if message.id == "pending"] == ["pending"]


@pytest.mark.parametrize(("lost", "word"), [(1, "+1"), (-2, "-2")])
def test_correction_of_the_books_is_said_and_kept(queue: Queue, redis_client: redis.Redis, lost: int, word: str):
    redis_client.hincrby(P + "stats", "sent", lost)
    (finding,) = of_queue(examine(queue, repair=True))
    assert (finding.kind, finding.repaired, finding.remedy) == ("books", True, f"{word} counted as adjusted")
    assert (queue.stats().adjusted, queue.stats().missing) == (lost, 0)


# -- what can only be warned of ----------------------------------------------------------------------------------------


def test_payload_that_is_gone_while_its_message_runs_is_left_to_the_consumer(queue: Queue, redis_client: redis.Redis):
    redis_client.delete(P + "msg:unack")
    report = examine(queue, repair=True)
    assert report.healthy
    assert kinds(report) == {("payload-missing", "unack")}
    assert [finding.severity for finding in report.warnings if finding.id] == ["warning"]
    assert states(redis_client)["unack"] == "unack"


def test_unreadable_envelope_is_left_to_its_delivery(queue: Queue, redis_client: redis.Redis, now: list[float]):
    redis_client.set(P + "msg:pending", "no envelope")
    report = examine(queue, repair=True)
    assert report.healthy
    assert kinds(report) == {("unreadable", "pending")}
    now[0] += 60_000
    queue.receive()
    assert states(redis_client)["pending"] == "dead"
    assert of_queue(examine(queue)) == []


def test_lease_that_nobody_took_back_is_found_and_its_message_taken_back(
    queue: Queue, redis_client: redis.Redis, now: list[float]
):
    now[0] += 30_000 + 5000
    assert of_queue(examine(queue)) == []
    now[0] += 1
    assert kinds(examine(queue)) == {("lease-overdue", None)}
    (finding,) = of_queue(examine(queue, repair=True))
    assert (finding.severity, finding.repaired, finding.remedy) == ("warning", True, "1 messages taken back")
    assert states(redis_client)["unack"] == "retry"


def test_due_message_that_no_consumer_promotes_is_found_unless_the_queue_is_paused(queue: Queue, now: list[float]):
    queue.reschedule("retry", 200)
    queue.cancel("unack")
    now[0] += 20_000
    queue.send("soon", delay=1)
    now[0] += 6001
    assert kinds(examine(queue)) == {("due-overdue", None)}
    queue.pause()
    assert of_queue(examine(queue)) == []


# -- what cannot be repaired -------------------------------------------------------------------------------------------


def test_member_that_is_no_text_is_named(queue: Queue, redis_client: redis.Redis):
    redis_client.hset(P + "errors", b"\xff\xfe", "E")
    (finding,) = of_queue(examine(queue, repair=True))
    assert (finding.kind, finding.repaired) == ("id", False)
    assert r"b'\xff\xfe'" in finding.text


@pytest.mark.parametrize("name", ["pending", "attempts", "cancelled", "bell", "stats"])
def test_key_of_another_type_is_named_and_the_shard_left_alone(queue: Queue, redis_client: redis.Redis, name: str):
    redis_client.delete(P + name)
    redis_client.set(P + name, "x")
    report = examine(queue, repair=True)
    assert kinds(report) == {("type", None)}
    assert f"{P}{name} is a string" in of_queue(report)[0].text
    assert not report.healthy


@pytest.mark.parametrize(
    ("field", "value"), [("format", "2"), ("format", "new"), ("shards", "0"), ("shards", "many"), ("shards", "1025")]
)
def test_record_that_cannot_be_read_is_named_with_its_value(redis_client: redis.Redis, field: str, value: str):
    Queue("jobs", redis=redis_client).send("x")
    redis_client.hset(P + "meta", field, value)
    report = examine(Queue("jobs", redis=redis_client), repair=True)
    assert kinds(report) == {("meta", None)}
    assert repr(value) in of_queue(report)[0].text
    assert (report.healthy, report.shards) == (False, 0)


def test_record_of_another_type_is_named(redis_client: redis.Redis):
    redis_client.set(P + "meta", "x")
    assert kinds(examine(Queue("jobs", redis=redis_client))) == {("meta", None)}


def test_queue_of_another_number_of_shards_is_not_looked_at(redis_client: redis.Redis):
    Queue("jobs", redis=redis_client).send("x")
    report = examine(Queue("jobs", redis=redis_client, shards=3))
    assert kinds(report) == {("meta", None)}
    assert (report.healthy, report.shards) == (False, 0)


# -- shards, names, progress -------------------------------------------------------------------------------------------


def test_all_shards_are_looked_at_and_told_apart(redis_client: redis.Redis):
    queue = Queue("many", redis=redis_client, shards=3)
    queue.send_many([Outgoing(n, id=f"m{n}", delay=60) for n in range(30)])
    for shard in queue.core.shards:
        redis_client.hincrby(shard.keys.stats, "sent", 1)
    report = examine(Queue("many", redis=redis_client, shards=None), repair=True)
    assert (report.shards, report.messages) == (3, 30)
    assert [finding.text[:8] for finding in of_queue(report)] == ["shard 0:", "shard 1:", "shard 2:"]


def test_message_in_a_shard_that_is_not_its_own_is_found(redis_client: redis.Redis):
    queue = Queue("many", redis=redis_client, shards=2)
    queue.send("x", id="m", delay=60)
    home = queue.core.shard("m")
    (other,) = [shard for shard in queue.core.shards if shard is not home]
    for name in ("pending", "stats", "msg:m"):
        base = home.keys.message_prefix[:-4], other.keys.message_prefix[:-4]
        redis_client.rename(base[0] + name, base[1] + name)
    assert kinds(examine(queue, repair=True)) == {("shard", "m")}


@pytest.mark.parametrize("name", ["a*", "a?", "[a-z]", "a\\*", "a]", "été ☃"])
def test_name_with_signs_of_a_pattern_stands_for_itself(redis_client: redis.Redis, name: str):
    queue, neighbour = Queue(name, redis=redis_client), Queue("ab", redis=redis_client)
    for each in (queue, neighbour):
        each.send("x", delay=60, id="a")
        redis_client.set(each.core.shards[0].keys.message("stray"), "?")
    assert {("orphan", "stray")} < kinds(examine(queue, repair=True))
    assert of_queue(examine(queue)) == []
    assert kinds(examine(neighbour)) == {("orphan", "stray")}


def test_steps_tell_how_far_it_has_come_and_what_it_found(queue: Queue, redis_client: redis.Redis):
    redis_client.delete(P + "msg:pending")
    steps: list[Step] = []
    report = examine(queue, on_step=steps.append)
    assert [step.finding for step in steps if step.finding] == report.findings
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert (steps[-1].done, steps[-1].total) == (6, 6)
    assert any(step.text == str(of_queue(report)[0]) for step in steps)
    assert all(step.text for step in steps)


# -- servers -----------------------------------------------------------------------------------------------------------


def test_server_that_may_lose_messages_is_warned_of(start_server: StartServer):
    config = {"maxmemory-policy": "allkeys-lru", "maxmemory": "800kb", "lua-time-limit": "50"}
    with start_server(config=config).client() as client:
        report = examine(Queue("jobs", redis=client))
    assert report.healthy
    assert {finding.kind for finding in report.warnings} == {"policy", "persistence", "memory", "script-limit"}
    (server,) = report.servers
    assert (server.maxmemory_policy, server.maxmemory, server.script_limit_ms) == ("allkeys-lru", 819_200, 50)


def test_server_that_writes_to_its_disk_is_not_warned_of(own_server: Any):
    with own_server.client() as client:
        assert examine(Queue("jobs", redis=client)).findings == []


def test_server_that_may_not_be_asked_is_examined_all_the_same(redis_client: redis.Redis, redis_server: Any):
    redis_client.acl_setuser(
        "worker", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-info", "-config"]
    )
    with redis_server.client(username="worker", password="") as client:
        report = examine(Queue("jobs", redis=client))
    assert report.findings == []
    told = {name for name in Server.__slots__ if getattr(report.servers[0], name) is not None}
    assert told == {"clock_offset"}
    redis_client.acl_deluser("worker")


@pytest.mark.parametrize(("offset", "found"), [(0.0, []), (0.9, []), (1.5, ["behind"]), (-1.5, ["ahead of"])])
def test_clock_of_the_server_is_held_against_this_machines(
    redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, offset: float, found: list[str]
):
    real = __import__("time").time
    monkeypatch.setattr("delayq.operations.servers.time.time", lambda: real() + offset)
    clocks = [finding for finding in examine(Queue("jobs", redis=redis_client)).warnings if finding.kind == "clock"]
    assert [finding.text for finding in clocks] == [
        f"the server's clock is 1.5 s {each} this machine's" for each in found
    ]


# -- live, large, spread -----------------------------------------------------------------------------------------------


def live(queue: Queue, stop: threading.Event) -> None:
    """Do everything that there is to do with messages, until told to stop."""
    chance = random.Random(1)
    while not stop.is_set():
        queue.send_many([Outgoing(n, delay=chance.choice([0, 0, 0.01])) for n in range(20)])
        queue.send("again", id="same", on_conflict=chance.choice(["ignore", "replace"]))
        queue.cancel("same")
        for message in queue.receive(20, lease=chance.choice([0.001, 30])):
            settle = chance.choice([message.ack, message.ack, message.nack, message.release, message.reject])
            with contextlib.suppress(StaleReceipt):
                settle()
        queue.dead.requeue()
        queue.purge(chance.choice(["pending", "ready", "retry", "dead"]))


def test_queue_that_is_in_use_looks_healthy_at_every_moment(redis_server: RedisServer):
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


def test_repair_of_a_queue_that_is_in_use_hurts_no_other_message(redis_server: RedisServer):
    stop = threading.Event()
    with ThreadPoolExecutor(2) as pool, redis_server.client() as client:
        queue = Queue("jobs", redis=client, backoff=backoff.fixed(0))
        running = [pool.submit(live, queue, stop) for _ in range(2)]
        queue.send_many([Outgoing("x", id=f"wounded-{n}", delay=3600) for n in range(300)])
        for n in range(300):  # the other threads purge them as well: a wound may hit one that is gone by then
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
    """Notes how much each round trip of a queue asks for and brings."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most_words = self.most_bytes = 0
        self._run = queue.connection.run
        monkeypatch.setattr(queue.connection, "run", self.run)

    def run(self, calls: Sequence[Call[Any]]) -> list[Any]:
        results = self._run(calls)
        self.most_words = max(self.most_words, *(len(call.args) for call in calls))
        brought = [each for result in results if isinstance(result, list) for each in result if isinstance(each, bytes)]
        self.most_bytes = max(self.most_bytes, sum(map(len, brought)))
        return results


def test_large_queue_is_looked_at_in_small_pieces(redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch):
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


@pytest.mark.parametrize("shards", [1, 5])
def test_queue_on_a_cluster_is_examined_and_repaired(cluster_url: str, shards: int):  # noqa: F811
    with Queue("jobs", url=cluster_url, shards=shards) as queue:
        queue.send_many([Outgoing(n, id=f"m{n}", delay=3600) for n in range(50)])
        client: Any = queue.connection.client
        for n in (1, 2, 3):
            assert client.execute_command("ZREM", queue.core.shard(f"m{n}").keys.pending, f"m{n}") == 1
        report = examine(queue)
        assert kinds(report) >= {("orphan", f"m{n}") for n in (1, 2, 3)}
        assert report.messages == 47
        assert len(report.servers) == len({server.run_id for server in report.servers}) == min(shards, 3)
        assert examine(queue, repair=True).healthy
        assert of_queue(examine(queue)) == []
