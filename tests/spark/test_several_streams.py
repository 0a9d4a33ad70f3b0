"""Several ledgers or topics in one query: by names, and by a pattern; limits of a batch, and what is left to read."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner
from delayq.cli import main
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from delayq import Queue, Topic
from delayq.errors import DataLost, InvalidInput
from delayq.model.record import Extent
from delayq.operations.topics.publish import NewRecord
from delayq.spark import reading
from delayq.spark.reading import offsets, several_streams
from delayq.spark.reading.lag import lag
from delayq.spark.redis_options import RedisOptions
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


def trim(server: RedisServer, name: str) -> int:
    with Topic(name, url=server.url, shards=2) as topic:
        return topic.trim(max_length=2, approximate=False)


def test_trimmed_stream_that_is_added_is_read_from_its_first_entry(
    redis_server: RedisServer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(several_streams, "LOOK_SECONDS", 0)
    assert trim(redis_server, "a,b") > 0
    one = follow(options, topic="orders")
    place, _ = step(one, one.initialOffset())
    listed = follow(options, topic='["orders", "a,b"]')
    end, rows = step(listed, place)
    assert 0 < len(rows) < 10
    earlier = json.loads(json.dumps(end))
    del earlier["streams"]["a,b"]["since"]  # as an earlier version of delayq stored it
    for stored in (end, earlier):
        again = follow(options, topic='["orders", "a,b"]')
        assert sum(len(reads.rows(again.read(piece))) for piece in again.partitions(place, stored)) == len(rows)
        again.stop()
        assert step(again, stored) == (stored, [])
    matching = follow(options, topicPattern="orders.*")
    place, _ = step(matching, matching.initialOffset())
    publish(redis_server, "orders-us", 0, 10)
    trim(redis_server, "orders-us")
    place, rows = step(matching, place, ReadMaxRows(1))
    assert len(rows) == 1
    publish(redis_server, "orders-us", 10, 20)
    trim(redis_server, "orders-us")
    with pytest.raises(DataLost, match=r"of topic orders-us: .* trimmed before they were read"):
        step(matching, place)


def test_entries_trimmed_after_a_stream_was_added_are_lost_even_if_no_batch_has_reached_it(
    redis_server: RedisServer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(several_streams, "LOOK_SECONDS", 0)
    one = follow(options, topic="orders-eu")
    first = step(one, one.initialOffset(), ReadMaxRows(1))[0]
    two = follow(options, topic='["orders-eu", "orders"]')
    place, rows = step(two, first, ReadMaxRows(1))
    assert len({name for name, _ in rows}) == 1
    late = ({"orders", "orders-eu"} - {name for name, _ in rows}).pop()
    trim(redis_server, late)
    with pytest.raises(DataLost, match=f"of topic {late}: "):
        step(follow(options, topic='["orders-eu", "orders"]'), place)


@pytest.mark.parametrize("available_now", [False, True])
def test_deleted_stream_that_matched_the_pattern_is_lost(
    redis_server: RedisServer, options: dict[str, str], available_now: bool
):
    reader = follow(options, topicPattern="orders.*")
    place, _ = step(reader, reader.initialOffset(), ReadMaxRows(12))
    with redis_server.client() as client:
        client.delete(*client.keys("delayq:{orders-eu*"))
    again = follow(options, topicPattern="orders.*")
    if available_now:
        again.prepareForTriggerAvailableNow()
    with pytest.raises(DataLost, match=r"of topic orders-eu: the stream that was read up to .* was deleted"):
        step(again, place)
    without = follow(options, topicPattern="(?!orders-eu$)orders.*")
    assert {name for name, _ in step(without, place)[1]} <= {"orders"}
    lenient = follow(options, topicPattern="orders.*", failOnDataLoss="false")
    assert {name for name, _ in step(lenient, place)[1]} <= {"orders"}


def test_names_that_are_used_once_do_not_make_the_offset_ever_longer(
    redis_server: RedisServer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(several_streams, "LOOK_SECONDS", 0)
    monkeypatch.setattr(offsets, "KEPT_GONE", 2)
    lenient = {"topicPattern": "job.*", "failOnDataLoss": "false"}
    reader = follow(options, **lenient)
    place, found = reader.initialOffset(), []
    with structlog.testing.capture_logs() as logs:
        for number in range(6):
            publish(redis_server, f"job{number}", 0, 4)
            before = place
            place, rows = step(reader, place)
            again = follow(options, **lenient)
            assert sum(map(len, (reads.rows(again.read(piece)) for piece in again.partitions(before, place)))) == 4
            again.stop()
            found += rows
            removed(redis_server, f"job{number}")
    assert found == expected([f"job{number}" for number in range(6)], 0, 4)
    assert place["streams"].keys() == {"job3", "job4", "job5"}
    assert [line["stream"] for line in logs if line["event"] == "entries lost"] == [f"topic job{n}" for n in range(5)]
    note(tmp_path, place)
    assert {each.name for each in lag(str(tmp_path), RedisOptions.of(options))} == {"job5"}
    for name in ("job0", "job4"):  # one has left the offset, the other has not
        publish(redis_server, name, 0, 9)
    place, rows = step(follow(options, **lenient), place)
    assert rows == expected(["job0", "job4"], 0, 9)
    assert step(follow(options, topicPattern="job.*"), place) == (place, [])  # what was logged once is not lost again


def test_stream_that_is_restored_continues_at_its_place(
    redis_server: RedisServer, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(several_streams, "LOOK_SECONDS", 0)
    lenient = {"topicPattern": "orders.*", "failOnDataLoss": "false"}
    reader = follow(options, **lenient)
    place, _ = step(reader, reader.initialOffset())
    backup = removed(redis_server, "orders-eu")
    publish(redis_server, "orders", 10, 12)
    place, rows = step(reader, place)
    assert rows == expected(["orders"], 10, 12)
    with redis_server.client() as client:
        for key, value in backup.items():
            client.restore(key, 0, value)
    publish(redis_server, "orders-eu", 10, 14)
    place, first = step(reader, place, ReadMaxRows(1))
    _, second = step(follow(options, topicPattern="orders.*"), place)
    assert len(first) == 1
    assert sorted(first + second) == expected(["orders-eu"], 10, 14)


def test_stream_without_a_mark_that_is_there_again_continues_unless_it_is_another_one():
    place, here = offsets.Offset("5-0", 5), Extent(5, "1-0", "5-0", 5)
    assert offsets.resumed(place, here) == place
    another = Extent(2, "8-0", "9-0", 2)
    assert offsets.resumed(place, another) == offsets.before(0, another)


def note(checkpoint: Path, end: dict[str, Any]) -> None:
    """Write the checkpoint of a query whose first batch, which is not complete, ends there."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir()
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{json.dumps(end)}")


def removed(server: RedisServer, name: str) -> dict[bytes, bytes]:
    """Remove a topic; return its keys and what they held."""
    with server.client() as client:
        backup = {key: client.dump(key) for key in client.keys(f"delayq:{{{name}*")}
        client.delete(*backup)
    return backup


def test_lag_of_an_unfinished_batch_is_counted_from_its_start_and_writes_nothing(
    redis_server: RedisServer, options: dict[str, str], tmp_path: Path
):
    reader = follow(options, topic='["orders", "a,b"]', start=json.dumps({"orders": "latest"}))
    end, rows = step(reader, reader.initialOffset())
    assert rows == expected(["a,b"])
    note(tmp_path, end)
    with Topic("orders", url=redis_server.url, shards=2) as topic:
        topic.publish(10, delay=0.05)
    time.sleep(0.1)
    with redis_server.client() as client:
        before = {key: client.dump(key) for key in client.scan_iter()}
        shards = lag(str(tmp_path), RedisOptions.of(options))
        assert {key: client.dump(key) for key in client.scan_iter()} == before
    assert sum(each.backlog for each in shards if each.name == "orders") == 0
    assert sum(each.backlog for each in shards if each.name == "a,b") == 10
    assert len(reads.read(options | {"topic": "orders"})) == 11  # unlike lag, a read appends due records


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"topic": '["orders", "a,b"]', "start": '{"0": "latest"}'},
            "names '0', which is not among topics orders, a,b",
        ),
        ({"topic": '["orders"]', "end": '{"order": "1-0"}'}, "\"end\" names 'order', which is not among topics orders"),
        ({"topicPattern": "orders.*", "start": '{"a,b": "latest"}'}, "'a,b', .* match orders.*: give a JSON object by"),
        ({"topicPattern": "orders.*", "start": '{"orders-x": "soon"}'}, "is 'soon': give earliest, latest"),
        ({"topicPattern": "orders.*", "start": '{"orders": {"x": "latest"}}'}, "'x', which is not the number of a"),
        ({"topicPattern": "orders.*", "start": "soon"}, "is 'soon': give earliest, latest"),
        ({"topic": "[]"}, r"is '\[\]', an array without names: give at least one name"),
        ({"topic": '[ "a", 1]'}, "not a JSON array of names"),
    ],
)
def test_wrong_names_and_positions_are_refused_at_once(more: dict[str, str], why: str):
    with pytest.raises(InvalidInput, match=why):
        reading.columns({"url": "redis://localhost:1"} | more)


def test_array_of_names_may_contain_spaces_and_a_name_may_have_brackets(
    redis_server: RedisServer, options: dict[str, str]
):
    for text in ('[ "orders" ]', ' ["orders"]', '\n[\n"orders"\n]'):
        assert [row["topic"] for row in reads.read(options | {"topic": text})] == ["orders"] * 10
    for name in ("[a]", "[]b"):
        publish(redis_server, name, 0, 1)
        assert len(reads.read(options | {"topic": name})) == 1


def test_shard_that_does_not_exist_is_refused(options: dict[str, str]):
    why = "names shard 2, which does not exist: give numbers from 0 to 1"
    by_shard = json.dumps({"2": "1-0"})
    for more in (
        {"topic": "orders", "start": by_shard},
        {"topicPattern": "ord.*", "start": f'{{"orders": {by_shard}}}'},
    ):
        with pytest.raises(InvalidInput, match=f'"start" {why}'):
            follow(options, **more).initialOffset()
        with pytest.raises(InvalidInput, match=f'"start" {why}'):
            reads.read(options | more)
    with pytest.raises(InvalidInput, match=f'"end" {why}'):
        reads.read(options | {"topic": "orders", "end": by_shard})
    missing = follow(options, topic="new", start=by_shard)  # it may get more shards
    assert missing.initialOffset()["shards"].keys() == {"0"}


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
