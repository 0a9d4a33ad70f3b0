"""The first batch of a stream starts where it was planned to, even if it is repeated later."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable

from delayq import Topic
from delayq.errors import DataLost, PipelineError
from delayq.operations.topics.publish import NewRecord
from delayq.spark import reading
from delayq.spark.archiving import folders
from delayq.spark.archiving.gaps import Loss
from delayq.spark.jobs.archive import archive
from delayq.spark.reading.streams import StreamReader
from delayq.spark.redis_options import RedisOptions
from tests.conftest import StartServer
from tests.harness.ledgers import append
from tests.harness.servers import RedisServer
from tests.harness.spark import reads
from tests.harness.spark.killing import Killing
from tests.harness.spark.recorded import entries, named, seen

AT = 1_763_726_400_000  # noon, UTC
KEY = "delayq:{orders}:topic"


@pytest.fixture
def topic(redis_server: RedisServer) -> Iterator[Topic]:
    with Topic("orders", url=redis_server.url) as topic:
        yield topic


def planned(options: dict[str, str]) -> dict[str, Any]:
    """Return the end of a first batch whose planner is killed."""
    reader = opened(options)
    found: dict[str, Any] = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())))
    reader.stop()
    return found


def again(options: dict[str, str], end: dict[str, Any]) -> list[int]:
    """Repeat a first batch as Spark does: from the initial offset of a new reader."""
    reader = opened(options)
    try:
        pieces = reader.partitions(json.loads(json.dumps(reader.initialOffset())), end)
    finally:
        reader.stop()
    rows = [row for piece in pieces for row in reads.rows(reads.copied(reader).read(reads.copied(piece)))]
    return sorted(int(row["payload"]) for row in rows)


def opened(options: dict[str, str]) -> StreamReader:
    reader = reading.stream_reader(options, reads.schema(options))
    assert isinstance(reader, StreamReader)
    return reader


def test_entries_trimmed_from_a_planned_first_batch_are_an_error(topic: Topic, redis_server: RedisServer):
    options = {"url": redis_server.url, "topic": "orders"}
    topic.publish_many([NewRecord(n) for n in range(10)])
    topic.trim(max_length=9, approximate=False)  # before it was planned, so nobody expects that record
    end = planned(options)
    assert again(options, end) == list(range(1, 10))
    topic.trim(max_length=3, approximate=False)
    with pytest.raises(DataLost, match="shard 0 of topic orders: 6 of the entries"):
        again(options, end)
    assert again(options | {"failOnDataLoss": "false"}, end) == [7, 8, 9]


def test_repeated_first_batch_that_started_at_latest_has_the_same_records(topic: Topic, redis_server: RedisServer):
    options = {"url": redis_server.url, "topic": "orders", "start": "latest"}
    topic.publish(0)
    reader = opened(options)
    start = reader.initialOffset()
    topic.publish(1)
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    reader.stop()
    topic.publish(2)
    assert again(options, end) == [1]


def test_server_that_keeps_no_counts_is_assumed_to_have_trimmed_a_first_batch(start_server: StartServer):
    server = start_server("6.2")
    options = {"url": server.url, "topic": "orders"}
    with Topic("orders", url=server.url) as topic, server.client() as client:
        topic.publish_many([NewRecord(n) for n in range(10)])
        client.xtrim(KEY, maxlen=9, approximate=False)
        end = planned(options)
        assert again(options, end) == list(range(1, 10))
        client.xtrim(KEY, maxlen=3, approximate=False)
        with pytest.raises(DataLost, match="an unknown number of the entries"):
            again(options, end)


def test_archive_reports_entries_dropped_since_its_first_run_was_killed(
    spark: SparkSession, redis_server: RedisServer, redis_client: redis.Redis, tmp_path: Path
):
    server, path = RedisOptions(redis_server.url), str(tmp_path)
    with server.queue("jobs") as queue:
        queue.configure(events=True)
        added = [append(redis_client, f"m{i}", "sent", AT) for i in range(8)]
        with pytest.raises(PipelineError, match="Killed"):
            Killing([(folders, "move")], 0).run(lambda: archive(spark, server, ["jobs"], path))
        queue.events.trim(max_length=2, approximate=False)
        with pytest.raises(DataLost, match=r"6 of the entries .* were trimmed before they were read\. The remaining"):
            archive(spark, server, ["jobs"], path)
    assert entries(tmp_path) == []
    calls: list[Loss] = []
    archive(spark, server, ["jobs"], path, skip_lost=True, tell_loss=calls.append)
    assert calls == [Loss("jobs", 0, "0-0", added[6], added[7], 6)]
    assert seen(tmp_path, "lost") == [calls[0]._asdict()]
    assert entries(tmp_path) == [named(0, entry) for entry in added[6:]]
