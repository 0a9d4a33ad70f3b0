"""The doctor finds what is wrong with a queue, reports nothing that is right, and repairs what it can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.doctor import Step, examine
from delayq.model.placement import STATES
from delayq.protocol.queue_commands import MAX_MOVED
from tests.harness.wounds import NOW, WOUNDS, P, kinds, of_queue, states


@pytest.fixture
def now() -> list[float]:
    return [NOW]


@pytest.fixture
def queue(redis_client: redis.Redis, now: list[float]) -> Iterator[Queue]:
    """A queue with a message in each state but held, named after it."""
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


def test_healthy_queue_has_no_findings(queue: Queue, redis_client: redis.Redis):
    queue.send_group([Outgoing("member", delay=60)], Outgoing("held", id="held"))
    before = states(redis_client)
    assert sorted(set(before.values())) == sorted(STATES)
    report = examine(queue, repair=True)
    assert (report.healthy, of_queue(report), report.messages, report.shards) == (True, [], 8, 1)
    assert states(redis_client) == before


def test_queue_that_is_nearly_full_is_a_warning(queue: Queue):
    queue.configure(max_length=6)  # it holds 4: dead letters do not count
    assert of_queue(examine(queue)) == []
    queue.send("next", delay=60)
    assert of_queue(examine(queue)) == []
    queue.send("last", delay=60)
    report = examine(queue)
    assert (kinds(report), report.healthy) == ({("nearly-full", None)}, True)
    assert "it holds 6 of at most 6 messages" in str(of_queue(report))


def test_unused_queue_is_healthy_and_stays_unrecorded(redis_client: redis.Redis):
    report = examine(Queue("none", redis=redis_client), repair=True)
    assert (report.healthy, of_queue(report), report.messages, report.shards) == (True, [], 0, 1)
    assert redis_client.keys("*") == []


@pytest.mark.parametrize("name", WOUNDS)
def test_damage_is_found_and_repaired_and_nothing_else_changes(queue: Queue, redis_client: redis.Redis, name: str):
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
def test_message_moved_to_the_dead_letters_can_be_purged_or_sent_again(
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


def test_requeue_brings_an_orphan_back(queue: Queue, redis_client: redis.Redis):
    redis_client.zrem(P + "pending", "pending")
    examine(queue, repair=True)
    assert queue.dead.requeue("pending") == 1
    assert [message.payload for message in queue.receive() if message.id == "pending"] == ["pending"]


@pytest.mark.parametrize(("lost", "word"), [(1, "+1"), (-2, "-2")])
def test_correction_of_the_statistics_is_reported_and_kept(
    queue: Queue, redis_client: redis.Redis, lost: int, word: str
):
    redis_client.hincrby(P + "stats", "sent", lost)
    (finding,) = of_queue(examine(queue, repair=True))
    assert (finding.kind, finding.repaired, finding.remedy) == ("books", True, f"{word} counted as adjusted")
    assert (queue.stats().adjusted, queue.stats().missing) == (lost, 0)


def test_progress_shows_how_far_the_doctor_is_and_what_it_found(queue: Queue, redis_client: redis.Redis):
    redis_client.delete(P + "msg:pending")
    steps: list[Step] = []
    report = examine(queue, on_step=steps.append)
    assert [step.finding for step in steps if step.finding] == report.findings
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert (steps[-1].done, steps[-1].total) == (6, 6)
    assert any(step.text == str(of_queue(report)[0]) for step in steps)
    assert all(step.text for step in steps)


# -- what it can only warn about ---------------------------------------------------------------------------------------


def test_missing_payload_of_a_running_message_is_left_to_the_consumer(queue: Queue, redis_client: redis.Redis):
    redis_client.delete(P + "msg:unack")
    report = examine(queue, repair=True)
    assert report.healthy
    assert kinds(report) == {("payload-missing", "unack")}
    assert [finding.severity for finding in report.warnings if finding.id] == ["warning"]
    assert states(redis_client)["unack"] == "unack"


def test_unreadable_envelope_is_left_to_the_consumer(queue: Queue, redis_client: redis.Redis, now: list[float]):
    redis_client.set(P + "msg:pending", "no envelope")
    report = examine(queue, repair=True)
    assert report.healthy
    assert kinds(report) == {("unreadable", "pending")}
    now[0] += 60_000
    queue.receive()
    assert states(redis_client)["pending"] == "dead"
    assert of_queue(examine(queue)) == []


def test_overdue_lease_is_found_and_its_message_taken_back(queue: Queue, redis_client: redis.Redis, now: list[float]):
    now[0] += 30_000 + 5000
    assert of_queue(examine(queue)) == []
    now[0] += 1
    assert kinds(examine(queue)) == {("lease-overdue", None)}
    (finding,) = of_queue(examine(queue, repair=True))
    assert (finding.severity, finding.repaired, finding.remedy) == ("warning", True, "1 message taken back")
    assert states(redis_client)["unack"] == "retry"


def test_all_overdue_leases_are_taken_back(queue: Queue, now: list[float]):
    queue.send_many([Outgoing(number) for number in range(MAX_MOVED + 1)])
    while queue.receive(500):
        pass
    running = queue.stats().unack
    now[0] += 3_600_000
    examine(queue, repair=True)
    assert running > MAX_MOVED
    assert queue.stats().unack == 0


def test_unpromoted_due_message_is_found_unless_the_queue_is_paused(queue: Queue, now: list[float]):
    queue.reschedule("retry", delay=200)
    queue.cancel("unack")
    now[0] += 20_000
    queue.send("soon", delay=1)
    now[0] += 6001
    assert kinds(examine(queue)) == {("due-overdue", None)}
    queue.pause()
    assert of_queue(examine(queue)) == []


# -- what it cannot repair -------------------------------------------------------------------------------------------


def test_id_that_is_not_text_is_reported(queue: Queue, redis_client: redis.Redis):
    redis_client.hset(P + "errors", b"\xff\xfe", "E")
    (finding,) = of_queue(examine(queue, repair=True))
    assert (finding.kind, finding.repaired) == ("id", False)
    assert r"b'\xff\xfe'" in finding.text


def test_reserved_id_without_a_message_is_fine_but_a_key_of_another_type_is_reported(
    queue: Queue, redis_client: redis.Redis
):
    queue.send("x", id="reserved", unique_for=3600)
    queue.purge("pending")
    assert of_queue(examine(queue)) == []
    redis_client.rpush(P + "unique:taken", "junk")
    redis_client.rpush(P.encode() + b"unique:\xff", "junk")
    found = of_queue(examine(queue, repair=True))
    assert [(finding.kind, finding.repaired) for finding in found] == [("type", False)] * 2
    assert sorted(finding.text for finding in found) == [
        P + "unique:\\xff is a list, not a string: its id cannot be reserved",
        P + "unique:taken is a list, not a string: its id cannot be reserved",
    ]


@pytest.mark.parametrize("name", ["pending", "attempts", "cancelled", "bell", "stats", "events"])
def test_key_of_another_type_is_reported_and_its_shard_is_unchanged(queue: Queue, redis_client: redis.Redis, name: str):
    redis_client.delete(P + name)
    redis_client.set(P + name, "x")
    report = examine(queue, repair=True)
    assert kinds(report) == {("type", None)}
    assert f"{P}{name} is a string" in of_queue(report)[0].text
    assert not report.healthy


@pytest.mark.parametrize(
    ("field", "value"), [("format", "3"), ("format", "new"), ("shards", "0"), ("shards", "many"), ("shards", "1025")]
)
def test_unreadable_record_is_reported_with_its_value(redis_client: redis.Redis, field: str, value: str):
    Queue("jobs", redis=redis_client).send("x")
    redis_client.hset(P + "meta", field, value)
    report = examine(Queue("jobs", redis=redis_client), repair=True)
    assert kinds(report) == {("meta", None)}
    assert repr(value) in of_queue(report)[0].text
    assert (report.healthy, report.shards) == (False, 0)


def test_record_of_another_type_is_reported(redis_client: redis.Redis):
    redis_client.set(P + "meta", "x")
    assert kinds(examine(Queue("jobs", redis=redis_client))) == {("meta", None)}


def test_queue_with_a_different_number_of_shards_is_not_examined(redis_client: redis.Redis):
    Queue("jobs", redis=redis_client).send("x")
    report = examine(Queue("jobs", redis=redis_client, shards=3))
    assert kinds(report) == {("meta", None)}
    assert (report.healthy, report.shards) == (False, 0)
