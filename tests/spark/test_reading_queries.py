"""Spark streaming queries over ledgers and topics: killed, restarted, bounded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from delayq import Queue, Topic
from delayq.operations.topics.publish import NewRecord
from tests.harness.servers import RedisServer


@pytest.fixture
def topic(redis_server: RedisServer) -> Iterator[Topic]:
    with Topic("orders", url=redis_server.url, shards=2) as topic:
        yield topic


class Copying:
    """A query that copies the new records of a topic to Parquet each time it runs."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self._spark, self._url, self._folder = spark, url, folder

    def run(self, **options: str) -> list[dict[str, Any]]:
        """Return the progress of its batches."""
        frame = self._spark.readStream.format("delayq").options(url=self._url, topic="orders", **options).load()
        writing = frame.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
        query = writing.trigger(availableNow=True).start(str(self._folder / "table"), format="parquet")
        query.awaitTermination()
        return [progress for progress in query.recentProgress if progress["numInputRows"]]

    def numbers(self) -> list[int]:
        """Return the copied records."""
        frame = self._spark.read.parquet(str(self._folder / "table"))
        return sorted(int(row["payload"]) for row in frame.select("payload").collect())


@pytest.fixture
def copying(spark: SparkSession, redis_server: RedisServer, tmp_path: Path) -> Copying:
    return Copying(spark, redis_server.url, tmp_path)


def publish(topic: Topic, first: int, end: int) -> None:
    topic.publish_many([NewRecord(n) for n in range(first, end)])


def test_query_resumes_after_its_checkpoint_keeps_its_bound_and_shows_its_backlog(topic: Topic, copying: Copying):
    publish(topic, 0, 25)
    batches = copying.run(maxEntriesPerTrigger="10")
    assert [batch["numInputRows"] for batch in batches] == [10, 10, 5]
    reports = [json.loads(batch["sources"][0]["latestOffset"]) for batch in batches]
    assert [(report["source"], report["backlog"]) for report in reports] == [
        ("topic orders", 15),
        ("topic orders", 5),
        ("topic orders", 0),
    ]
    publish(topic, 25, 40)
    assert [batch["numInputRows"] for batch in copying.run()] == [15]
    assert copying.run() == []
    assert copying.numbers() == list(range(40))


def test_query_fails_for_trimmed_entries_unless_losses_are_allowed(topic: Topic, copying: Copying):
    publish(topic, 0, 10)
    copying.run()
    publish(topic, 10, 30)
    topic.trim(max_length=4, approximate=False)
    with pytest.raises(StreamingQueryException, match=r"DataLost.*shard 0 of topic orders: 6 of the entries after"):
        copying.run()
    copying.run(failOnDataLoss="false")
    assert copying.numbers() == [*range(10), *range(22, 30)]


def test_ledger_is_a_table_of_events(spark: SparkSession, redis_server: RedisServer):
    with Queue("mail", url=redis_server.url, shards=2, events=True) as queue:
        for n in range(20):
            queue.send(n, id=f"{n}")
        queue.ack(queue.receive(20))
        frame = spark.read.format("delayq").options(url=redis_server.url, events="mail", partitions="4").load()
        assert frame.rdd.getNumPartitions() == 4
        found = {row["event"]: row["count"] for row in frame.groupBy("event").count().collect()}
        stats = queue.stats()
    assert found == {"sent": 20, "promoted": 20, "delivered": stats.delivered, "acked": stats.acked}
