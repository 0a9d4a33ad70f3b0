"""No call passes more than a few megabytes of records through a script or in its reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq import NewRecord, Record, Topic
from delayq.operations.topics import dead_letters, group_read, read
from delayq.protocol.operation import Operation
from tests.harness.calls import round_trip, run_one
from tests.harness.servers import RedisServer

LARGE = 256 * 1024
MOST = 1_000_000 + 8 * LARGE  # where a call stops, and one page that is read before its size is known
SIZES = [*[100] * 40, *[LARGE] * 40, *[100] * 40]


def size(reply: Any) -> int:
    """Count the bytes of a reply."""
    return len(reply) if isinstance(reply, bytes) else sum(map(size, reply)) if isinstance(reply, list | tuple) else 0


def replies(topic: Topic, operation: Operation[Any]) -> list[int]:
    """Run an operation; return the size of each reply."""
    sizes: list[int] = []
    results: Any = None
    while True:
        try:
            commands = operation.send(results)
        except StopIteration:
            return sizes
        results = topic.execute(round_trip, commands)
        sizes += map(size, results)


@pytest.fixture
def topic(redis_server: RedisServer) -> Any:
    with Topic("orders", url=redis_server.url) as topic:
        topic.publish_many([NewRecord(b"x" * each) for each in SIZES])
        yield topic


OPERATIONS: dict[str, Callable[[Any], Operation[Any]]] = {
    "range": lambda context: read.records_range(context, "-", "+", 1000, False),
    "reversed": lambda context: read.records_range(context, "-", "+", 1000, True),
    "dead": lambda context: dead_letters.dead(context, "billing", 1000),
    "poll": lambda context: group_read.poll(context, "mail", "me", 1000),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_large_records_behind_small_ones_are_delivered_in_several_replies(topic: Topic, name: str):
    billing, _ = topic.group("billing", "0"), topic.group("mail", "0")
    while records := billing.poll("me", 1000):
        for record in records if name == "dead" else ():
            billing.bury(record, "me")
    sizes = replies(topic, OPERATIONS[name](topic._context))
    if name != "poll":  # a poll returns a part
        assert sum(sizes) >= sum(SIZES)
    assert max(sizes) < MOST


def test_tail_reads_large_records_behind_small_ones_in_several_replies(topic: Topic):
    place = read.Tail(topic._context, "0")
    topic.execute(lambda _: place.begin())
    found: list[Record] = []
    while more := topic.execute(lambda _: place.more()):
        assert sum(len(record.body) for record in more) < MOST
        found += more
    assert len(found) == len(SIZES)


def test_lag_of_large_records_behind_small_ones_is_counted_in_several_calls(topic: Topic):
    scripts = topic._context.shards[0]
    first, _, more = topic.execute(run_one, scripts.lag("0-0"))
    assert more
    assert sum(SIZES[:first]) < MOST


def test_requeue_of_dead_letters_is_bounded_by_what_it_reads_from_the_topic(topic: Topic):
    billing = topic.group("billing", "0")
    while records := billing.poll("me", 1000):
        for record in records:
            billing.bury(record, "me")
    letters = [letter for letter in billing.dead() if len(letter.record.body) == LARGE]
    assert len(letters) > 4
    scripts = topic._context.shards[0]
    call = scripts.requeue_dead("billing", "me", [letter.id for letter in letters])
    assert topic.execute(run_one, call) == [1, 1]  # two of them, each read twice, make a megabyte
