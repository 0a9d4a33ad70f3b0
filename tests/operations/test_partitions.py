"""A queue divided into parts, and dead letters as they were seen, without Spark."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest
import redis

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.model.placement import Row, State
from delayq.model.progress import Progress
from delayq.operations import partitions
from delayq.operations.bulk.edit import SeenLetter, requeue_seen

WAITING: list[State] = ["pending", "ready"]


@pytest.fixture(params=[1, 3])
def queue(redis_client: redis.Redis, request: pytest.FixtureRequest) -> Queue:
    return Queue("jobs", redis=redis_client, shards=request.param)


def test_sizes_are_split_into_even_parts():
    parts = partitions.divide([5, 0, 1, 7], 4)
    assert [sum(each.end - each.first for each in part) for part in parts] == [3, 3, 3, 4]
    assert sorted((each.which, n) for part in parts for each in part for n in range(each.first, each.end)) == [
        (which, n) for which, count in enumerate([5, 0, 1, 7]) for n in range(count)
    ]
    assert len(partitions.divide([2, 1], 100)) == 3
    assert partitions.divide([0, 0], 4) == []


def rows(queue: Queue, part: partitions.ScoreRange) -> list[Row]:
    walk, found = queue.execute(partitions.walk, part), list[Row]()
    while page := queue.execute(walk.step):
        found += page
    return found


def test_parts_contain_each_message_once_even_if_all_have_one_score(queue: Queue):
    due = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    queue.send_many([Outgoing(number, id=str(number), at=due) for number in range(1200)])
    parts = queue.execute(partitions.plan, WAITING, -math.inf, math.inf, 5)
    queue.send_many([Outgoing("later", delay=1), Outgoing("much later", at=due + dt.timedelta(days=1))])
    found = [sorted(row[0] for each in part for row in rows(queue, each)) for part in parts]
    ids = [each for part in found for each in part if each.isdigit()]
    assert sorted(ids, key=int) == [str(number) for number in range(1200)]
    assert all(240 <= len(part) <= 241 for part in found)  # the message that is due first may be in one of them
    assert sum(map(len, found)) <= 1201  # the last one is in none


def test_messages_that_left_are_left_out_of_what_is_looked_up(queue: Queue):
    queue.send_many([Outgoing(number, id=str(number), delay=60) for number in range(30)])
    (part,) = queue.execute(partitions.plan, WAITING, -math.inf, math.inf, 1)
    pages = [(each, rows(queue, each)) for each in part]
    assert queue.cancel("7") == "cancelled"
    queue.collect_garbage()
    found: list[str] = []
    for each, left in pages:
        while left:
            page, known = queue.execute(partitions.look_up, each.shard, each.state, left, {"envelope", "error"})
            assert list(map(len, known.values())) == [len(page)] * 2
            found += [row[0] for row in page]
    assert sorted(found, key=int) == [str(number) for number in range(30) if number != 7]


def test_shards_are_counted_only_once_the_queue_is_recorded(queue: Queue):
    assert queue.execute(partitions.shard_count) is None
    assert queue.execute(partitions.shard_count, create=True) == len(queue._context.shards)
    assert queue.execute(partitions.shard_count) == len(queue._context.shards)


def test_only_dead_letters_that_did_not_die_again_come_back(queue: Queue):
    queue.send_many([Outgoing(each, id=each) for each in ("plain", "edited", "again", "wrong")])
    for message in queue.receive(10):
        message.reject("first")
    seen = {each.id: each.died_at for each in queue.dead.list()}
    assert all(seen.values())
    queue.dead.requeue("again")
    changes: dict[str, dict[str, Any]] = {"edited": {"payload": "new"}, "wrong": {"headers": {"delayq-task": "x"}}}
    letters = [SeenLetter(name, died_at, changes.get(name, {})) for name, died_at in sorted(seen.items()) if died_at]
    progress = Progress("are requeued")
    gone, edited, plain, wrong = queue.execute(requeue_seen, letters, 0, progress)
    assert (gone, edited, plain) == (False, True, True)
    assert isinstance(wrong, InvalidInput)
    assert str(progress) == "2 are requeued"
    assert {message.payload for message in queue.receive(10)} == {"plain", "new", "again"}
