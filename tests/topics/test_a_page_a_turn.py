"""In each turn, a topic's consumer does one page of each duty: handlers and new records do not wait for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from delayq import NewRecord, Record, Topic, TopicConsumer, backoff
from delayq.model.lease_clock import lease_now
from delayq.operations.topics import group_read, publish
from delayq.operations.watch import Watch
from delayq.protocol.topic_commands import MAX_RECORDS, TopicCommands
from delayq.runtime.topic_engine import TopicEngine
from tests.harness.calls import round_trip, run_one
from tests.harness.servers import RedisServer

LARGE = 256 * 1024
Pages = Callable[[str], Counter[int]]


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Pages:
    """``pages(script)``: count, from now on, how often a consumer calls a script in each of its turns."""
    turn, number = TopicEngine._turn, 0

    def counted(engine: TopicEngine) -> Any:
        nonlocal number
        number += 1
        return turn(engine)

    def watch(script: str) -> Counter[int]:
        command, calls = getattr(TopicCommands, script), Counter[int]()

        def called(scripts: TopicCommands, *args: Any, **options: Any) -> Any:
            calls[number] += 1
            return command(scripts, *args, **options)

        monkeypatch.setattr(TopicCommands, script, called)
        return calls

    monkeypatch.setattr(TopicEngine, "_turn", counted)
    return watch


@pytest.mark.parametrize(("script", "holder"), [("redeliver", "me"), ("reclaim", "another")])
def test_consumer_takes_large_unacked_records_one_page_per_turn(
    redis_server: RedisServer, pages: Pages, script: str, holder: str
):
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing")
        ids = [each.id for each in topic.publish_many([NewRecord(b"x" * LARGE)] * 12)]
        while group.poll(holder, 12):
            pass
        if holder != "me":
            with redis_server.client() as client:
                client.xclaim(topic._context.shards[0].keys.stream, "billing", holder, 0, ids, idle=60_000)
        calls, seen = pages(script), list[str]()
        TopicConsumer(group, lambda record: seen.append(record.id), name="me", concurrency=12).drain()
    assert sorted(seen) == sorted(ids)
    assert calls.total() >= 3
    assert set(calls.values()) == {1}


def test_restarted_consumer_lists_its_unacked_records_one_page_per_turn(redis_server: RedisServer, pages: Pages):
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing", max_deliveries=2)
        records = topic.publish_many([NewRecord(number) for number in range(2 * MAX_RECORDS + 10)])
        held = group.poll("me", 2 * MAX_RECORDS + 5)
        calls, seen = pages("unacked"), list[tuple[str, int]]()
        TopicConsumer(
            group, lambda record: seen.append((record.id, record.deliveries)), name="me", concurrency=1
        ).drain()
    assert seen == [(each.id, 2) for each in held] + [(each.id, 1) for each in records[len(held) :]]
    assert calls.total() == 3
    assert set(calls.values()) == {1}


def test_drain_handles_held_and_new_records_behind_a_thousand_that_wait_for_a_retry(
    redis_server: RedisServer,
):
    with Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing")
        ids = [each.id for each in topic.publish_many([NewRecord(number) for number in range(1110)])]
        group.poll("me", 1105)
        seen = list[str]()

        def fail(record: Record) -> bool:
            seen.append(record.id)
            return False

        TopicConsumer(group, fail, name="me", concurrency=100, backoff=backoff.fixed(3600)).drain()
    assert sorted(seen) == sorted(ids)


def test_consumer_skips_due_records_without_envelopes_one_page_per_turn(redis_server: RedisServer, pages: Pages):
    with (
        redis_server.client() as client,
        Topic("orders", url=redis_server.url, clock=lambda: now) as topic,
    ):
        now = 1_700_000_000_000
        group = topic.group("billing")
        topic.publish_many([NewRecord(number, delay=1, id=f"{number:04}") for number in range(3 * MAX_RECORDS + 2)])
        keys = topic._context.shards[0].keys
        client.delete(*(keys.record(f"{number:04}") for number in range(3 * MAX_RECORDS)))
        now += 1000
        calls, seen = pages("append"), list[int]()
        TopicConsumer(group, lambda record: seen.append(record.payload), concurrency=1).drain()
    assert seen == [3 * MAX_RECORDS, 3 * MAX_RECORDS + 1]
    assert calls.total() == 4
    assert set(calls.values()) == {1}


def test_poll_finds_due_records_behind_pages_without_envelopes(redis_server: RedisServer):
    with redis_server.client() as client, Topic("orders", url=redis_server.url, clock=lambda: now) as topic:
        now = 1_700_000_000_000
        group = topic.group("billing")
        topic.publish_many([NewRecord(number, delay=1, id=f"{number:04}") for number in range(2 * MAX_RECORDS + 1)])
        keys = topic._context.shards[0].keys
        client.delete(*(keys.record(f"{number:04}") for number in range(2 * MAX_RECORDS)))
        now += 1000
        assert [record.payload for record in group.poll("me")] == [2 * MAX_RECORDS]


def test_poll_script_skips_a_bounded_number_of_records_for_other_groups(redis_server: RedisServer):
    with redis_server.client() as client, Topic("orders", url=redis_server.url) as topic:
        group, scripts = topic.group("billing"), topic._context.shards[0]
        with client.pipeline() as pipe:
            for number in range(2 * MAX_RECORDS):  # as `requeue_dead` appends them
                pipe.xadd(scripts.keys.stream, {"n": number, "delayq:group": "mail"})
            pipe.execute()
        topic.publish("mine")
        client.config_resetstat()
        assert topic.execute(run_one, scripts.poll("billing", "me", 10)).entries == []
        assert client.info("commandstats")["cmdstat_xack"]["calls"] <= MAX_RECORDS + 8
        assert [record.payload for record in group.poll("me", wait=30)] == ["mine"]


def test_poll_without_a_wait_ends_after_a_page_of_records_for_other_groups(redis_server: RedisServer, pages: Pages):
    with redis_server.client() as client, Topic("orders", url=redis_server.url) as topic:
        group = topic.group("billing")
        with client.pipeline() as pipe:
            for number in range(5 * MAX_RECORDS // 2):  # as `requeue_dead` appends them
                pipe.xadd(topic._context.shards[0].keys.stream, {"n": number, "delayq:group": "mail"})
            pipe.execute()
        topic.publish("mine")
        calls, polled = pages("poll"), list[list[str]]()
        while not polled or not polled[-1]:
            polled.append([record.payload for record in group.poll("me")])
    assert polled == [[], [], ["mine"]]
    assert calls.total() == len(polled)


def test_drain_continues_behind_large_records_for_other_groups(redis_server: RedisServer):
    with redis_server.client() as client, Topic("orders", url=redis_server.url) as topic:
        group, seen = topic.group("billing"), list[str]()
        for _ in range(12):
            client.xadd(topic._context.shards[0].keys.stream, {"e": b"x" * LARGE, "delayq:group": "mail"})
        topic.publish("mine")
        TopicConsumer(group, lambda record: seen.append(record.payload)).drain()
    assert seen == ["mine"]


def test_due_records_of_all_shards_are_found_in_one_round_trip(redis_server: RedisServer):
    with Topic("orders", url=redis_server.url, shards=3, clock=lambda: 1_700_000_000_000) as topic:
        topic.publish_many([NewRecord("late", delay=60), NewRecord("later", delay=90)])
        look = publish.append_due(topic._context)
        calls = next(look)
        assert [call.script.name for call in calls if call.script] == ["topics/due"] * 3
        with pytest.raises(StopIteration) as done:
            look.send(topic.execute(round_trip, calls))
        assert done.value.value.next_ms == 60_000


def test_poll_that_the_server_runs_late_hands_out_nothing_and_the_next_one_does(redis_server: RedisServer):
    """Also if only its clock was set forward."""
    with Topic("orders", url=redis_server.url) as topic:
        group, watch = topic.group("billing", start="0"), Watch(30_000, is_virtual=False)
        topic.publish("x")
        watch.heard(topic._context.shards[0].keys.stream, lease_now(), now_ms=1, grace_ms=0)
        late, prompt = (topic.execute(group_read.poll, group.name, "me", 10, (), watch) for _ in range(2))
        assert (late.records, late.more) == ([], True)
        assert [record.payload for record in prompt.records] == ["x"]
