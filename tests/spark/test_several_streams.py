"""Several ledgers or topics in one query: by names, and by a pattern; limits of a batch, and what is left to read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from delayq.cli import main
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from delayq import Queue, Topic
from delayq.errors import DataLost, InvalidInput
from delayq.operations.topics.publish import NewRecord
from delayq.spark import reading
from delayq.spark.reading import several_streams
from tests.harness.servers import RedisServer
from tests.harness.spark import reads

ALL = ReadAllAvailable()
NAMES = ["a,b", "orders", "orders-eu"]


@pytest.fixture
def options(redis_server: RedisServer) -> dict[str, str]:
    for name in NAMES:
        publish(redis_server, name, 0, 10)
    return {"url": redis_server.url}


def publish(server: RedisServer, name: str, first: int, end: int) -> None:
    with Topic(name, url=server.url, shards=2) as topic:
        topic.publish_many([NewRecord(n) for n in range(first, end)])


def follow(options: dict[str, str], **more: str) -> Any:
    return reading.stream_reader(options | more, reads.schema(options | more))


def step(reader: Any, start: dict[str, Any], limit: Any = ALL) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    """Run a batch; return its end, and the topic and the number of each record."""
    start = json.loads(json.dumps(start))
    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
    pieces = reader.partitions(start, end)
    reader.stop()
    found = [row for piece in pieces for row in reads.rows(reads.copied(reader).read(reads.copied(piece)))]
    return end, sorted((row["topic"], int(row["payload"])) for row in found)


def expected(names: list[str], first: int = 0, end: int = 10) -> list[tuple[str, int]]:
    return [(name, n) for name in names for n in range(first, end)]


def test_names_and_patterns_read_several_as_one_table(redis_server: RedisServer, options: dict[str, str]):
    listed = reads.read(options | {"topic": json.dumps(NAMES[:2]), "start": json.dumps({"orders": "99999999999999"})})
    assert [row["topic"] for row in listed] == ["a,b"] * 10
    matched = reads.read(options | {"topicPattern": "orders.*"})
    assert sorted((row["topic"], int(row["payload"])) for row in matched) == expected(NAMES[1:])
    assert reads.read(options | {"topicPattern": "order"}) == []
    for name in ("mail", "sms"):
        with Queue(name, url=redis_server.url, events=True) as queue:
            queue.send(name, id=name)
    assert reads.ids(reads.read(options | {"queuePattern": "[a-z]+"})) == ["mail", "sms"]
    assert {row["sent"] for row in reads.read(options | {"queue": '["mail", "sms"]', "read": "stats"})} == {1}
    assert reads.ids(reads.read(options | {"eventsPattern": ".*"})) == ["mail", "sms"]


def test_new_names_are_read_from_their_beginning_and_a_limit_is_shared(
    redis_server: RedisServer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(several_streams, "LOOK_SECONDS", 0)
    monkeypatch.setattr(several_streams, "KEPT_OPEN", 1)
    reader = follow(options, topicPattern="orders.*")
    place, first = step(reader, reader.initialOffset(), ReadMaxRows(12))
    publish(redis_server, "orders-us", 0, 10)
    place, second = step(reader, place, ReadMaxRows(12))
    again = follow(options, topicPattern="orders.*")
    place, third = step(again, place)
    assert (len(first), len(second)) == (12, 12)
    assert {name for name, _ in first} == set(NAMES[1:])
    assert sorted(first + second + third) == expected([*NAMES[1:], "orders-us"])
    assert step(again, place) == (place, [])
    assert again.reportLatestOffset()["backlog"] == 0


def test_checkpoint_of_one_stream_continues_among_several_and_not_the_other_way_round(
    redis_server: RedisServer, options: dict[str, str]
):
    one = follow(options, topic="orders")
    place, rows = step(one, one.initialOffset())
    assert rows == expected(["orders"])
    publish(redis_server, "orders", 10, 12)
    two = follow(options, topic='["orders", "a,b"]')
    place, rows = step(two, place)
    assert rows == [*expected(["a,b"]), *expected(["orders"], 10, 12)]
    with pytest.raises(InvalidInput, match="belongs to a query of orders, a,b: list them all"):
        step(one, place)
    with pytest.raises(InvalidInput, match="belongs to topic with prefix delayq, not to events"):
        step(follow(options, events='["orders"]'), place)
    with redis_server.client() as client:
        client.delete(*client.keys("delayq:{orders*:topic"))
    publish(redis_server, "orders", 0, 20)
    with pytest.raises(DataLost, match=r"of topic orders: the stream that was read up to .* was deleted"):
        step(two, place)


def test_start_is_given_by_name_and_by_shard(options: dict[str, str]):
    by_shard = {"0": "latest"}
    reader = follow(options, topic="orders", start=json.dumps(by_shard))
    _, rows = step(reader, reader.initialOffset())
    both = follow(options, topic='["orders", "a,b"]', start=json.dumps({"orders": by_shard, "a,b": "latest"}))
    assert step(both, both.initialOffset())[1] == rows
    assert 0 < len(rows) < 10
    for wrong, why in (
        ('{"x": "latest"}', "'x', which is not the number of a shard"),
        ('{"0": 5}', "a JSON object of"),
    ):
        with pytest.raises(InvalidInput, match=why):
            follow(options, topic="orders", start=wrong)


def test_batch_waits_for_enough_entries_but_not_too_long(
    redis_server: RedisServer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for topic in ({"topic": "orders"}, {"topic": '["orders"]'}):
        reader = follow(options, **topic, minEntriesPerTrigger="5", maxTriggerDelay="60")
        place, rows = step(reader, reader.initialOffset())
        assert rows  # the first batch does not wait
        publish(redis_server, "orders", 0, 4)
        assert step(reader, place) == (place, [])
        assert reader.reportLatestOffset()["backlog"] == 4
        now[0] += 61
        place, rows = step(reader, place)
        assert len(rows) == 4
        publish(redis_server, "orders", 0, 5)
        place, rows = step(reader, place)
        assert len(rows) == 5
        publish(redis_server, "orders", 0, 1)
        last = follow(options, **topic, minEntriesPerTrigger="5")
        last.prepareForTriggerAvailableNow()
        assert len(step(last, place)[1]) == 1
    for wrong, why in (
        ({"maxTriggerDelay": "5"}, 'needs the option "minEntriesPerTrigger"'),
        ({"minEntriesPerTrigger": "5", "maxEntriesPerTrigger": "4"}, "is 5, more than the 4"),
        ({"topicPattern": "("}, "not a regular expression"),
    ):
        with pytest.raises(InvalidInput, match=why):
            reading.columns(options | ({} if "topicPattern" in wrong else {"topic": "orders"}) | wrong)


def test_query_of_several_streams_continues_after_its_checkpoint_which_shows_the_lag(
    spark: SparkSession, redis_server: RedisServer, options: dict[str, str], tmp_path: Path
):
    checkpoint = str(tmp_path / "checkpoint")

    def run(**more: str) -> None:
        frame = spark.readStream.format("delayq").options(**options, topicPattern="orders.*", **more).load()
        writing = frame.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writing.start(str(tmp_path / "table"), format="parquet").awaitTermination()

    def lag(*more: str) -> str:
        result = CliRunner().invoke(main, ["pipeline", "lag", checkpoint, "--url", redis_server.url, *more])
        assert result.exit_code == 0, result.output
        return result.output

    run(maxEntriesPerTrigger="15")
    publish(redis_server, "orders", 10, 13)
    rows = [json.loads(line) for line in lag("--json").splitlines()]
    assert sum(row["backlog"] for row in rows) == 3
    assert {(row["kind"], row["name"], row["shard"]) for row in rows} == {
        ("topic", name, shard) for name in NAMES[1:] for shard in (0, 1)
    }
    assert sum(int(line.split()[-1]) for line in lag("--metrics").splitlines()[2:]) == 3
    run()
    assert "lost" in lag()
    found = spark.read.parquet(str(tmp_path / "table")).select("topic", "payload").collect()
    wanted = sorted([*expected(NAMES[1:]), *expected(["orders"], 10, 13)])
    assert sorted((row["topic"], int(row["payload"])) for row in found) == wanted
    result = CliRunner().invoke(main, ["pipeline", "lag", str(tmp_path)])
    assert result.exit_code == 2
    assert "is not the checkpoint of a query" in result.output
