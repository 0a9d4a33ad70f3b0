"""Ledgers and topics as rows, in batches and as streams."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import structlog
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from delayq import Outgoing, Queue, Topic
from delayq.errors import DataLost, InvalidInput
from delayq.model import packed_events
from delayq.model.event import Event
from delayq.operations.topics.publish import NewRecord
from delayq.spark import reading
from delayq.spark.reading.stream_partitions import StreamPartition
from delayq.spark.reading.streams import StreamReader
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.spark import reads

ALL = ReadAllAvailable()


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("mail", url=redis_server.url, shards=3, events=True) as queue:
        yield queue


@pytest.fixture
def topic(redis_server: RedisServer) -> Iterator[Topic]:
    with Topic("orders", url=redis_server.url, shards=3) as topic:
        yield topic


@pytest.fixture
def ledger(redis_server: RedisServer) -> dict[str, str]:
    return {"url": redis_server.url, "events": "mail"}


@pytest.fixture
def options(redis_server: RedisServer) -> dict[str, str]:
    return {"url": redis_server.url, "topic": "orders"}


def live(queue: Queue, count: int = 30) -> None:
    """Take messages through every event that the ledger records."""
    for n in range(count):
        queue.send({"n": n}, id=f"{n}-ü")
    first, second, *others = queue.receive(20)
    first.nack(delay=60, error="broken")
    second.reject("unwanted")
    queue.ack(others)
    queue.send("later", delay=3600, id="later")
    queue.cancel("later")


def publish(topic: Topic, first: int, end: int) -> None:
    topic.publish_many([NewRecord(n) for n in range(first, end)])


def follow(options: dict[str, str], **more: str) -> StreamReader:
    reader = reading.stream_reader(options | more, reads.schema(options))
    assert isinstance(reader, StreamReader)
    return reader


def step(reader: StreamReader, start: dict[str, Any], limit: Any = ALL) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run a batch; return its end and its rows. Offsets go through JSON, partitions through pickle to executors."""
    start = json.loads(json.dumps(start))
    end = json.loads(json.dumps(reader.latestOffset(start, limit)))
    return end, batch(reader, start, end)


def batch(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    pieces = reader.partitions(start, end)
    reader.stop()
    return [row for piece in pieces for row in reads.rows(reads.copied(reader).read(reads.copied(piece)))]


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return sorted(int(row["payload"]) for row in rows)


def test_ledger_is_read_as_rows_of_events(queue: Queue, ledger: dict[str, str]):
    live(queue)
    rows = reads.read(ledger)
    assert {row["event"] for row in rows} >= {"sent", "promoted", "delivered", "acked", "nacked", "died", "cancelled"}
    expected = [
        {"queue": "mail", "shard": record.shard}
        | {name: getattr(Event.of(record), name) for name in Event.__struct_fields__}
        for record in queue.events.range(count=1000)
    ]
    assert len({row["shard"] for row in rows}) == 3
    assert sorted(rows, key=str) == sorted(({name: row[name] for name in rows[0]} for row in expected), key=str)


def test_entries_of_other_programs_are_left_out_and_counted(
    queue: Queue, ledger: dict[str, str], redis_client: redis.Redis
):
    live(queue)
    count = len(reads.read(ledger))
    redis_client.xadd("delayq:{mail}:events", {"who": "knows"})
    fields: dict[Any, Any] = {
        "id": b"\xff",
        "event": "sent",
        "at": 5,
        "attempt": "",
        "due": "inf",
        "late": "-0.5",
        "consumer": "",
        "reason": "",
    }
    redis_client.xadd("delayq:{mail}:events", fields)
    redis_client.xadd("delayq:{mail}:events", fields | {"at": "soon"})
    with structlog.testing.capture_logs() as logs:
        rows = reads.read(ledger | {"partitions": "1"})
    assert len(rows) == count + 1
    skipped = [line for line in logs if line["event"] == "foreign ledger entries skipped"]
    assert [(line["log_level"], line["count"]) for line in skipped] == [("warning", 2)]
    (strange,) = [row for row in rows if row["id"] == "\\xff"]
    assert (strange["due_at"].year, strange["late"], strange["attempt"]) == (9999, -0.0005, None)


def test_missing_ledger_or_topic_is_reported(queue: Queue, ledger: dict[str, str], options: dict[str, str]):
    live(queue)
    for wrong in ({"events": "mial"}, {"topic": "orders"}):
        mine = {"url": options["url"]} | wrong
        with structlog.testing.capture_logs() as logs:
            assert reads.read(mine) == []
            reader = follow(mine)
            start = reader.initialOffset()
            reader.latestOffset(start, ALL)
            reader.stop()
        assert [line["event"] for line in logs] == ["nothing to read"] * 2
        with pytest.raises(InvalidInput, match=rf"{next(iter(wrong.values()))} does not exist: check its name"):
            reads.read(mine | {"failOnMissing": "true"})
    assert reads.read(ledger | {"failOnMissing": "true"}) != []


def test_topic_is_read_as_rows_of_records(topic: Topic, options: dict[str, str], redis_client: redis.Redis):
    topic.publish({"n": 1}, headers={"a": 1, "b": None, "c": b"\xff"})
    topic.publish(b"\x00\xff")
    topic.publish("late", at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))  # due, and waiting for a reader to append it
    redis_client.xadd("delayq:{orders#1}:topic", {"who": "knows"})
    redis_client.xadd("delayq:{orders#2}:topic", {"e": b"\xc1"})
    redis_client.xadd("delayq:{orders#0}:topic", {"who": "knows", "delayq:group": "a group it was requeued for"})
    with structlog.testing.capture_logs() as logs:
        rows = reads.read(options)
    assert [line["count"] for line in logs if line["event"] == "records unreadable"] == [1]
    assert sorted((row["shard"], row["id"], row["published_at"]) for row in rows) == sorted(
        (record.shard, record.id, record.published_at) for record in topic.range()
    )
    assert sorted(((row["payload"], row["headers"], row["body"]) for row in rows), key=str) == [
        ('"late"', {}, b'"late"'),
        ('{"n":1}', {"a": "1", "b": None, "c": "/w=="}, b'{"n":1}'),
        ('{"who":"knows"}', {}, None),
        (None, None, None),
        (None, {}, b"\x00\xff"),
    ]


def test_batch_goes_from_start_to_end_inclusive(topic: Topic, options: dict[str, str], redis_client: redis.Redis):
    for n in range(1, 10):
        redis_client.xadd("delayq:{orders}:topic", {"n": n}, id=f"{n * 1000}-5")
    topic.publish("opened")

    def between(**bounds: str) -> list[str]:
        return [row["id"] for row in reads.read(options | bounds) if row["id"].endswith("-5")]

    assert between(start="3000-5", end="5000-5") == ["3000-5", "4000-5", "5000-5"]
    assert between(start="3000-6", end="5000") == ["4000-5", "5000-5"]
    assert between(start="1970-01-01T01:00:08+01:00") == ["8000-5", "9000-5"]
    assert between(end="1970-01-01T00:00:02Z") == ["1000-5", "2000-5"]
    assert len(between(start="earliest", end="latest")) == 9


def test_long_stream_is_split_among_tasks_even_with_gaps(
    topic: Topic, options: dict[str, str], redis_client: redis.Redis
):
    topic.publish("opened")
    pipe = redis_client.pipeline()
    for n in range(4000):
        pipe.xadd("delayq:{orders}:topic", {"n": n}, id=f"{n}-1" if n < 2000 else f"{10**12}-{n}")
    redis_client.delete("delayq:{orders}:topic")
    pipe.execute()
    tasks = reads.by_task(options | {"partitions": "24", "columns": "id,shard"})
    of_first = [len(task) for task in tasks if task[0]["shard"] == 0]
    assert len(of_first) == 8
    assert max(of_first) <= 2000
    assert sum(of_first) == len({row["id"] for task in tasks for row in task if row["shard"] == 0}) == 4000


def test_stream_returns_each_record_in_one_batch(topic: Topic, options: dict[str, str]):
    publish(topic, 0, 1200)
    reader = follow(options)
    start = reader.initialOffset()
    first, rows = step(reader, start)
    assert numbers(rows) == list(range(1200))
    assert step(reader, first) == (first, [])
    publish(topic, 1200, 1300)
    second, rows = step(reader, first)
    assert numbers(rows) == list(range(1200, 1300))
    publish(topic, 1300, 1400)
    assert numbers(batch(reader, first, second)) == list(range(1200, 1300))
    assert numbers(batch(reader, start, first)) == list(range(1200))


def test_stream_starts_at_a_given_position(options: dict[str, str], redis_client: redis.Redis):
    for n in (1, 2, 3):
        redis_client.xadd("delayq:{orders}:topic", {"n": n}, id=f"{n * 1000}-5")

    def first(start: str) -> list[str]:
        reader = follow(options, start=start)
        return [row["id"] for row in step(reader, reader.initialOffset())[1]]

    assert first("2000-5") == ["2000-5", "3000-5"]
    assert first("2000") == ["2000-5", "3000-5"]
    assert first("2000-6") == ["3000-5"]
    assert first("1970-01-01T00:00:03Z") == ["3000-5"]
    assert first("earliest") == ["1000-5", "2000-5", "3000-5"]
    assert first("latest") == []
    reader = follow(options, start="latest")
    begun = reader.initialOffset()
    redis_client.xadd("delayq:{orders}:topic", {"n": 4}, id="4000-5")
    assert [row["id"] for row in step(reader, begun)[1]] == ["4000-5"]


@pytest.mark.parametrize("most", [1, 2, 7, 1500])
def test_batches_never_exceed_their_bound_and_reach_the_end(topic: Topic, options: dict[str, str], most: int):
    count = 25 if most < 1000 else 4000
    publish(topic, 0, count)
    reader = follow(options, maxEntriesPerTrigger=f"{most}")
    assert reader.getDefaultReadLimit() == ReadMaxRows(most)
    reader.prepareForTriggerAvailableNow()
    publish(topic, count, count + 50)
    place, found = reader.initialOffset(), []
    while True:
        reached, rows = step(reader, place, ReadMaxRows(most))
        if reached == place:
            break
        assert 0 < len(rows) <= most
        found += rows
        place = reached
    assert numbers(found) == list(range(count))


def test_progress_of_a_stream_shows_its_backlog(topic: Topic, options: dict[str, str]):
    publish(topic, 0, 30)
    reader = follow(options)
    start = reader.initialOffset()
    assert reader.reportLatestOffset() is None
    place = reader.latestOffset(start, ReadMaxRows(12))
    report = reader.reportLatestOffset()
    end = reader.latestOffset(place, ALL)
    assert report == {"source": "topic orders", "backlog": 18} | end
    publish(topic, 30, 33)
    assert reader.latestOffset(end, ReadMaxRows(3)) != end
    assert (reader.reportLatestOffset() or {})["backlog"] == 0
    reader.stop()


def test_shards_added_later_are_read_from_their_start(redis_server: RedisServer, options: dict[str, str]):
    reader = follow(options)
    place = reader.initialOffset()
    reader.stop()
    assert place["shards"].keys() == {"0"}
    with Topic("orders", url=redis_server.url, shards=3) as topic:
        publish(topic, 0, 10)
    place, rows = step(follow(options), place)
    assert numbers(rows) == list(range(10))
    assert place["shards"].keys() == {"0", "1", "2"}


def test_entries_trimmed_before_they_were_read_are_an_error_that_counts_them(
    topic: Topic, options: dict[str, str], redis_client: redis.Redis
):
    publish(topic, 0, 30)
    reader = follow(options)
    place, _ = step(reader, reader.initialOffset())
    publish(topic, 30, 60)
    redis_client.xtrim("delayq:{orders#1}:topic", maxlen=3, approximate=False)
    with pytest.raises(
        DataLost, match=rf"shard 1 of topic orders: 7 of the entries after {place['shards']['1']['id']} "
    ):
        step(reader, place)
    reader.stop()
    with structlog.testing.capture_logs() as logs:
        reached, rows = step(follow(options, failOnDataLoss="false"), place)
        assert len(rows) == 23
        assert step(follow(options), reached) == (reached, [])
    assert [line["what"][:1] for line in logs if line["event"] == "entries lost"] == ["7"]


def test_entries_trimmed_after_they_were_read_are_not_missed(
    topic: Topic, options: dict[str, str], redis_client: redis.Redis
):
    publish(topic, 0, 30)
    reader = follow(options)
    place, _ = step(reader, reader.initialOffset(), ReadMaxRows(15))
    assert sum(place["shards"][f"{shard}"]["entries"] for shard in range(3)) == 15
    for shard, tag in enumerate(("orders", "orders#1", "orders#2")):
        ms, counter = place["shards"][f"{shard}"]["id"].split("-")
        redis_client.xtrim(f"delayq:{{{tag}}}:topic", minid=f"{ms}-{int(counter) + 1}", approximate=False)
    place, rows = step(reader, place)
    assert len(rows) == 15
    for tag in ("orders", "orders#1", "orders#2"):
        redis_client.xtrim(f"delayq:{{{tag}}}:topic", maxlen=0, approximate=False)
    publish(topic, 30, 33)
    assert numbers(step(reader, place)[1]) == [30, 31, 32]


def test_entries_trimmed_while_a_task_reads_are_an_error(
    topic: Topic, options: dict[str, str], redis_client: redis.Redis
):
    publish(topic, 0, 3000)
    for fails in (True, False):
        reader = follow(options, partitions="3", failOnDataLoss=f"{fails}")
        start = reader.initialOffset()
        piece = next(iter(reader.partitions(start, reader.latestOffset(start, ALL))))
        assert isinstance(piece, StreamPartition)
        reader.stop()
        redis_client.xtrim(piece.value, maxlen=100 if fails else 50, approximate=False)
        with structlog.testing.capture_logs() as logs:
            if fails:
                with pytest.raises(DataLost, match=f"entries from {piece.first} on were trimmed"):
                    reads.rows(reader.read(piece))
            else:
                assert len(reads.rows(reader.read(piece))) == 50
                assert [line["shard"] for line in logs] == [piece.shard]


def test_large_records_are_read_a_few_at_a_time(redis_server: RedisServer):
    with Topic("large", url=redis_server.url) as topic:
        topic.publish_many([NewRecord(b"x" * 1024 * 1024) for _ in range(30)])
        ids = [record.id for record in topic.range()]
        piece = StreamPartition(0, topic._context.shards[0].keys.stream, ids[0], ids[-1], "-", "+")
        pages = list(piece.pages(topic, pytest.fail))
    assert [entry for page in pages for entry, _ in page] == ids
    assert max(map(len, pages)) < 10


def test_large_records_behind_small_ones_are_read_a_few_at_a_time(redis_server: RedisServer):
    with Topic("large", url=redis_server.url) as topic:
        topic.publish_many([NewRecord(b"x" * size) for size in [10] * 600 + [1024 * 1024] * 20 + [10] * 600])
        ids = [record.id for record in topic.range(count=2000)]
        piece = StreamPartition(0, topic._context.shards[0].keys.stream, ids[0], ids[-1], "-", "+")
        pages = list(piece.pages(topic, pytest.fail))
    assert [entry for page in pages for entry, _ in page] == ids
    assert max(sum(len(word) for _, fields in page for word in fields or ()) for page in pages) < 10 * 1024 * 1024


def test_single_deleted_record_is_not_a_loss(topic: Topic, options: dict[str, str], redis_client: redis.Redis):
    publish(topic, 0, 3000)
    reader = follow(options, partitions="3")
    start = reader.initialOffset()
    pieces = reader.partitions(start, reader.latestOffset(start, ALL))
    for piece in pieces:
        keys: list[Any] = [entry for entry, _ in redis_client.xrange(piece.value) or ()]
        redis_client.xdel(piece.value, keys[5], keys[499], keys[500])
    reader.stop()
    assert sum(len(reads.rows(reader.read(piece))) for piece in pieces) == 2991


def test_recreated_stream_is_a_loss(topic: Topic, options: dict[str, str], redis_client: redis.Redis):
    publish(topic, 0, 30)
    reader = follow(options)
    place, _ = step(reader, reader.initialOffset())
    reader.stop()
    redis_client.flushall()
    with pytest.raises(DataLost, match="was deleted, as in a move of the queue"):
        step(follow(options), place)


@pytest.mark.parametrize("known", ["marks", "numbers"])
@pytest.mark.parametrize("more", [30, 90])  # it has outgrown the old one, or has not
def test_another_stream_of_the_same_name_is_a_loss_and_is_read_from_its_beginning(
    topic: Topic, options: dict[str, str], redis_client: redis.Redis, known: str, more: int
):
    publish(topic, 0, 60)
    reader = follow(options)
    place, _ = step(reader, reader.initialOffset())
    publish(topic, 60, 63)  # never read
    redis_client.delete(*(scripts.keys.stream for scripts in topic._context.shards))
    publish(topic, 100, 100 + more)
    if known == "numbers":
        for shard in place["shards"].values():
            shard["mark"] = ""
    for _ in range(2):
        with pytest.raises(DataLost, match=r"was deleted, .* continue with \.option"):
            step(reader, place)
        with pytest.raises(DataLost, match="was deleted"):
            reader.partitions(place, {**place, "shards": {s: o | {"id": "9-0"} for s, o in place["shards"].items()}})
        reader.stop()
    with structlog.testing.capture_logs() as logs:
        reached, rows = step(follow(options, failOnDataLoss="false"), place)
    assert numbers(rows) == list(range(100, 100 + more))
    assert [line["event"] for line in logs].count("entries lost") == 3
    assert step(follow(options), reached) == (reached, [])


def test_other_stream_with_lower_ids_is_read_from_its_beginning(options: dict[str, str], redis_server: RedisServer):
    with Topic("orders", url=redis_server.url) as topic, redis_server.client() as client:
        topic.publish_many([NewRecord(n, id=f"{n + 5}-0") for n in range(10)])
        reader = follow(options, failOnDataLoss="false")
        place, _ = step(reader, reader.initialOffset())
        client.delete("delayq:{orders}:topic")
        topic.publish_many([NewRecord(n, id=f"{n + 1}-0") for n in range(20, 24)])
        for most in (ReadMaxRows(3), ALL):
            place, rows = step(reader, place, most)
            assert numbers(rows) == ([20, 21, 22] if most != ALL else [23])
        planned = reader.latestOffset(place, ALL)
        topic.publish(30, id="90-0")
        end = reader.latestOffset(planned, ALL)
        client.delete("delayq:{orders}:topic")  # between the plan and the batch
        topic.publish_many([NewRecord(n) for n in range(40, 44)])
        with structlog.testing.capture_logs() as logs:
            assert batch(reader, planned, end) == []
        assert [line["event"] for line in logs] == ["entries lost"]
        assert numbers(step(reader, end)[1]) == [40, 41, 42, 43]
        reader.stop()


def test_server_that_keeps_no_counts_is_assumed_to_have_trimmed(start_server: StartServer):
    server = start_server("6.2")
    options = {"url": server.url, "topic": "orders"}
    with Topic("orders", url=server.url) as topic, server.client() as client:
        publish(topic, 0, 10)
        topic.trim(max_length=8, approximate=False)
        reader = follow(options)
        place, rows = step(reader, reader.initialOffset())
        assert numbers(rows) == list(range(2, 10))
        publish(topic, 10, 20)
        place, rows = step(reader, place, ReadMaxRows(4))
        assert numbers(rows) == [10, 11, 12, 13]
        client.xtrim("delayq:{orders}:topic", maxlen=2, approximate=False)
        with pytest.raises(DataLost, match="an unknown number of the entries"):
            step(reader, place)
        reader.stop()


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"start": "soon"}, "'soon': give earliest, latest, the id of an entry, or a time"),
        ({"start": "latest"}, "is empty"),
        ({"start": "99999999999999999999-0"}, "is not an id of a record"),
        ({"end": "2026-01-01"}, "has no time zone"),
        ({"read": "dead"}, '"read" for a table or a stream of events'),
        ({"maxEntriesPerTrigger": "5"}, '"maxEntriesPerTrigger" for a batch'),
        ({"topic": "orders"}, "events and topic to read"),
    ],
)
def test_invalid_batch_option_is_named_with_its_remedy(ledger: dict[str, str], option: dict[str, str], expected: str):
    with pytest.raises(InvalidInput, match=expected):
        reads.read(ledger | option)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"end": "latest"}, '"end" for a stream of topic'),
        ({"maxEntriesPerTrigger": "0"}, "'0': give a whole number from 1"),
        ({"failOnDataLoss": "maybe"}, "'maybe': give true or false"),
    ],
)
def test_invalid_stream_option_is_named_with_its_remedy(options: dict[str, str], option: dict[str, str], expected: str):
    with pytest.raises(InvalidInput, match=expected):
        follow(options, **option)


@pytest.mark.parametrize("option", [{"maxEntriesPerTriger": "5"}, {"max_entries_per_trigger": "many"}])
def test_mistyped_stream_option_fails_before_the_query_starts(options: dict[str, str], option: dict[str, str]):
    """Spark asks for the columns in analysis, and for a reader when the query starts."""
    with pytest.raises(InvalidInput, match=rf'option "{next(iter(option))}"'):
        reading.columns(options | option)


# -- offsets in checkpoints, and ledger entries with several events --------------------------------------------------


def test_offset_says_whose_it_is(queue: Queue, redis_server: RedisServer):
    options = {"url": redis_server.url, "events": "mail"}
    queue.send_many(Outgoing(n) for n in range(30))
    reader = follow(options)
    place, _ = step(reader, reader.initialOffset())
    assert (place["format"], place["kind"], place["prefix"], place["name"]) == (2, "events", "delayq", "mail")
    assert len({shard["mark"] for shard in place["shards"].values()} - {""}) == 3
    for others in ({"events": "other"}, {"prefix": "another"}):
        with pytest.raises(
            InvalidInput, match=r"the checkpoint belongs to the ledger of queue mail with prefix delayq"
        ):
            follow(options | others).latestOffset(place, ALL)
        with pytest.raises(InvalidInput, match="use another checkpoint"):
            follow(options | others).partitions(place, place)
    with pytest.raises(InvalidInput, match="use a newer delayq"):
        follow(options).latestOffset(place | {"format": 4}, ALL)


def test_offset_of_an_earlier_version_is_continued(queue: Queue, redis_server: RedisServer, redis_client: redis.Redis):
    options = {"url": redis_server.url, "events": "mail"}
    keys = [scripts.keys for scripts in queue._context.shards]
    queue.send("x")
    for key in keys:
        redis_client.hdel(key.meta, "needs")
    queue.send_many(Outgoing(n) for n in range(30))
    reader = follow(options)
    now, _ = step(reader, reader.initialOffset())
    before = {shard: {"id": each["id"], "entries": each["entries"]} for shard, each in now["shards"].items()}
    queue.configure(events=True)
    queue.send_many(Outgoing(n) for n in range(300))
    assert sum(redis_client.xlen(key.events) for key in keys) < 100
    place, rows = step(follow(options), before)
    assert len(rows) == 300
    assert len({(row["shard"], row["entry"]) for row in rows}) == 300
    assert sum(each["entries"] for each in place["shards"].values()) == 331
    redis_client.delete(*(key.events for key in keys))
    with pytest.raises(DataLost):
        step(follow(options), place)


@pytest.mark.parametrize("most", [1, 40, 1000])
def test_each_packed_event_is_in_one_batch(queue: Queue, redis_server: RedisServer, most: int):
    options = {"url": redis_server.url, "events": "mail"}
    for part in range(3):
        queue.send_many(Outgoing(n) for n in range(200))
        queue.send(f"{part}")
    reader = follow(options, maxEntriesPerTrigger=f"{most}")
    place, found = reader.initialOffset(), []
    while True:
        reached, rows = step(reader, place, ReadMaxRows(most))
        if reached == place:
            break
        assert 0 < len(rows) < most + 300
        found += rows
        place = reached
    assert len({row["id"] for row in found}) == len(found) == 603
    assert {row["event"] for row in found} == {"sent"}


def test_trimmed_events_are_counted(queue: Queue, redis_server: RedisServer, redis_client: redis.Redis):
    options = {"url": redis_server.url, "events": "mail"}
    queue.send_many(Outgoing(n) for n in range(30))
    reader = follow(options)
    place, _ = step(reader, reader.initialOffset())
    queue.send_many(Outgoing(n) for n in range(600))
    key = queue._context.shards[1].keys.events
    stored: Any = redis_client.xrange(key)
    fields: list[Any] = [word for pair in stored[-1][1].items() for word in pair]
    left = packed_events.count(fields)
    redis_client.xtrim(key, maxlen=1, approximate=False)
    with structlog.testing.capture_logs() as logs:
        _, rows = step(follow(options, failOnDataLoss="false"), place)
    (lost,) = {line["what"].split()[0] for line in logs if line["event"] == "entries lost"}
    assert len(rows) + int(lost) == 600
    assert sum(row["shard"] == 1 for row in rows) == left
