"""A stream divided into ranges that several readers read, without Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delayq import NewRecord, Topic
from delayq.model.positions import id_of, number_of
from delayq.operations.topics import partitions
from tests.harness.servers import RedisServer


@pytest.fixture
def topic(redis_server: RedisServer) -> Iterator[Topic]:
    with Topic("orders", url=redis_server.url, shards=2) as topic:
        topic.publish_many([NewRecord(number, id=f"{1000 + number}-0", key="a") for number in range(1200)])
        yield topic


def shard(topic: Topic) -> int:
    """Return the shard with the records."""
    return [extent.length for extent in topic.execute(partitions.extents)].index(1200)


def test_ranges_contain_each_entry_once(topic: Topic):
    ranges = topic.execute(partitions.divide, shard(topic), "-", "+", 5)
    found: list[str] = []
    for stream, first, last in ranges:
        at, more = first, True
        while more:
            page, more = topic.execute(partitions.page, stream, at, last)
            found += [entry for entry, _ in page]
            at = f"({page[-1][0]}"
    assert len(ranges) == 5
    assert found == [f"{1000 + number}-0" for number in range(1200)]
    assert topic.execute(partitions.divide, 1 - shard(topic), "-", "+", 5) == []


def test_entries_are_counted_up_to_an_end_or_a_number(topic: Topic):
    number = shard(topic)
    extent = topic.execute(partitions.extents)[number]
    assert topic.execute(partitions.skip, number, "0-0", "2199-0", 5000) == ("2199-0", 1200, extent)
    assert topic.execute(partitions.skip, number, "1099-0", "2199-0", 1050) == ("2149-0", 1050, extent)


def test_first_entry_of_a_stream_is_the_one_that_was_not_trimmed(topic: Topic):
    ((stream, first, _),) = topic.execute(partitions.divide, shard(topic), "-", "+", 1)
    assert topic.execute(partitions.first, stream) == first == "1000-0"
    topic.trim(min_id="1500-0", approximate=False)
    assert topic.execute(partitions.first, stream) == "1500-0"
    topic.trim(max_length=0, approximate=False)
    assert topic.execute(partitions.first, stream) == ""


@pytest.mark.parametrize("entry", ["0-0", "5-0", "1700000000000-7", f"{2**53 - 1}-1", f"7-{2**64 - 1}"])
def test_ids_and_numbers_are_converted_without_loss(entry: str):
    assert id_of(number_of(entry)) == entry
