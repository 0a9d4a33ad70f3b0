"""Another program deletes what delayq knows of a group: the message that waits becomes due, or is reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis

from delayq import NoResult, Outgoing, Queue
from delayq.doctor import examine
from delayq.operations import groups

NOW = 1_700_000_000_000.0


@pytest.fixture
def now() -> list[float]:
    return [NOW]


@pytest.fixture
def queue(redis_client: redis.Redis, now: list[float]) -> Iterator[Queue]:
    with Queue("jobs", redis=redis_client, clock=lambda: now[0]) as queue:
        yield queue


def sweep(queue: Queue, now: list[float]) -> None:
    """What a consumer does each minute."""
    now[0] += 60_000
    while queue.execute(groups.sweep):
        pass


STRUCTURES = ("members", "groups", "rosters", "held", "pending", "unack", "meta", "stats")
FIELDS: list[tuple[str, str]] = [
    *((name, "") for name in STRUCTURES),
    *(("members", each) for each in ("a", "b", "t")),
    *((name, "g") for name in ("groups", "rosters")),
    *(("held", "t"), ("pending", "b"), ("unack", "a"), ("meta", "needs")),
]


def delete(client: Any, name: str, field: str) -> None:
    key = f"delayq:{{jobs}}:{name}"
    if not field:
        client.delete(key)
    elif name in ("held", "pending", "unack"):
        client.zrem(key, field)
    else:
        client.hdel(key, field)


@pytest.mark.parametrize("dead", ["wait", "continue"])
@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_nothing_is_held_silently_whatever_another_program_deletes(
    queue: Queue, redis_client: redis.Redis, now: list[float], name: str, field: str, dead: Any
):
    """It becomes due after all members that exist have ended, or `doctor` reports it."""
    queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b", delay=600)], Outgoing(3, id="t"), id="g", dead=dead)
    (first,) = queue.receive(lease=3600)
    delete(redis_client, name, field)
    sweep(queue, now)
    state = {each: getattr(queue.get(each), "state", None) for each in "abt"}
    assert state["t"] in ("held", None) or not {"pending", "unack"} & {state["a"], state["b"]}, "it is due too early"
    if state["a"] == "unack":
        first.ack()
    sweep(queue, now)
    now[0] += 600_000
    queue.ack([each for each in queue.receive() if each.id == "b"])  # which may have begun a sweep before
    sweep(queue, now)
    sweep(queue, now)
    findings = {(each.kind, each.id) for each in examine(queue).findings}
    state["t"] = getattr(queue.get("t"), "state", None)
    if name == "held":
        assert state["t"] is None
        assert ("orphan", "t") in findings
    else:
        assert state["t"] in ("pending", "unack")


@pytest.mark.parametrize("field", ["a", "b", "t"])
def test_nothing_is_held_silently_whatever_another_program_writes_into_memberships(
    queue: Queue, redis_client: redis.Redis, now: list[float], field: str
):
    queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b", delay=600)], Outgoing(3, id="t"), id="g")
    redis_client.hset("delayq:{jobs}:members", field, "nonsense")
    for _ in range(2):
        now[0] += 600_000
        queue.ack(queue.receive())
        sweep(queue, now)
        sweep(queue, now)
    state = getattr(queue.get("t"), "state", None)
    assert state in ("pending", None) or ("group", "t") in {(each.kind, each.id) for each in examine(queue).findings}


def test_mended_group_waits_for_all_members_that_exist(queue: Queue, redis_client: redis.Redis, now: list[float]):
    members = [Outgoing(1, id="a", max_retries=0), Outgoing(2, id="b", delay=3600)]
    queue.send_group(members, Outgoing(3, id="t"), id="g", dead="continue")
    (first,) = queue.receive()
    first.nack(error="broken")
    queue.dead.requeue(["a"])  # it has ended once, as far as the group knows
    delete(redis_client, "members", "b")
    sweep(queue, now)
    queue.ack(queue.receive())
    sweep(queue, now)
    assert {each: getattr(queue.get(each), "state", None) for each in "bt"} == {"b": "pending", "t": "held"}


def test_results_of_a_group_whose_list_of_members_is_lost_are_refused(queue: Queue, redis_client: redis.Redis):
    queue.send_group([Outgoing(1, id="a")], id="g")
    delete(redis_client, "rosters", "g")
    group = queue.group("g")
    assert group is not None
    with pytest.raises(NoResult, match="has removed the list of its members"):
        list(group.results())


@pytest.mark.parametrize("names", [(), ("rosters",), ("groups",), ("groups", "rosters")], ids="-".join)
def test_group_of_which_memberships_are_left_can_be_cancelled(
    queue: Queue, redis_client: redis.Redis, names: tuple[str, ...]
):
    queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b", delay=600)], Outgoing(3, id="t"), id="g")
    queue.send_group([Outgoing(1, id="other")], Outgoing(3, id="then"), id="h")
    for name in names:
        delete(redis_client, name, "g")
    assert queue.cancel_group("g") == 3
    assert queue.cancel_group("g") == 0
    assert {each: getattr(queue.get(each), "state", None) for each in ("a", "b", "t", "other", "then")} == {
        "a": None, "b": None, "t": None, "other": "pending", "then": "held",
    }  # fmt: skip
    assert (queue.stats().cancelled, queue.stats().missing) == (3, 0)


def test_running_member_of_a_group_without_a_list_of_its_members_is_not_retried(
    queue: Queue, redis_client: redis.Redis
):
    queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b", delay=600)], id="g")
    (message,) = queue.receive()
    delete(redis_client, "rosters", "")
    assert queue.cancel_group("g") == 1
    message.nack()
    assert queue.get("a") is None


REPAIRED = {  # what was deleted: what the doctor says was wrong
    ("pending", "b"): "1 member and 0 groups",
    ("members", "b"): "1 member and 0 groups",
    ("groups", "g"): "0 members and 1 group",
}


@pytest.mark.parametrize(("name", "field"), REPAIRED)
def test_doctor_mends_groups_at_once_and_says_how_many(
    queue: Queue, redis_client: redis.Redis, now: list[float], name: str, field: str
):
    queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b", delay=600)], Outgoing(3, id="t"), id="g")
    sweep(queue, now)  # so that consumers rest for half a minute
    delete(redis_client, name, field)
    report = examine(queue, repair=True)
    (found,) = [each for each in report.findings if each.kind == "group"]
    assert (found.repaired, report.healthy) == (True, True)
    assert f"what was stored of {REPAIRED[name, field]} was wrong: corrected" in str(found)
    assert [each for each in examine(queue, repair=True).findings if each.kind == "group"] == []
    queue.ack(queue.receive())
    now[0] += 600_000
    queue.ack([each for each in queue.receive() if each.id == "b"])
    sweep(queue, now)
    assert getattr(queue.get("t"), "state", None) in ("pending", "unack")


def test_doctor_mends_many_groups_in_pages(queue: Queue, redis_client: redis.Redis):
    for number in range(250):
        queue.send_group([Outgoing(1, id=f"{number}-{each}") for each in "ab"], id=f"g{number}")
    for number in range(250):
        delete(redis_client, "members", f"{number}-a")
    (found,) = [each for each in examine(queue, repair=True).findings if each.kind == "group"]
    assert "what was stored of 250 members and 0 groups was wrong" in str(found)
    assert redis_client.hlen("delayq:{jobs}:members") == 500


LOST = [("members", "groups"), ("groups", "rosters"), ("members", "rosters"), ("members", "groups", "rosters")]


@pytest.mark.parametrize("names", LOST, ids="-".join)
def test_message_whose_group_cannot_be_restored_is_reported(
    queue: Queue, redis_client: redis.Redis, now: list[float], names: tuple[str, ...]
):
    queue.send_group([Outgoing(1, id="a"), Outgoing(2, id="b", delay=600)], Outgoing(3, id="t"), id="g")
    assert [each for each in examine(queue).findings if each.kind == "group"] == []
    for name in names:
        delete(redis_client, name, "")
    for _ in range(2):
        found = [each for each in examine(queue).findings if each.kind == "group"]
        assert [each.id for each in found] == ["t"]
        assert "waits for group g, whose data is lost" in str(found[0])
        assert "reschedule the message to run it without waiting, or cancel it" in str(found[0])
        sweep(queue, now)
    assert "group g" in queue.why("t")
    assert queue.reschedule("t", delay=0) == "rescheduled"
    assert [each for each in examine(queue).findings if each.kind == "group"] == []


def test_message_that_waits_for_no_group_is_reported(queue: Queue, redis_client: redis.Redis):
    queue.send(1, id="a", delay=60)
    redis_client.zrem("delayq:{jobs}:pending", "a")
    redis_client.zadd("delayq:{jobs}:held", {"a": NOW})
    assert ("group", "a") in {(each.kind, each.id) for each in examine(queue).findings}
