"""The messages of a queue as rows: their contents, and how tasks share them."""

from __future__ import annotations

import base64
import datetime as dt
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest
import redis
import structlog
from pyspark.sql import SparkSession

from delayq import Outgoing, Queue
from delayq.errors import InvalidInput
from delayq.model.delivery import Deliveries
from delayq.model.message_info import MessageInfo
from delayq.model.placement import State
from delayq.operations import partitions
from delayq.spark import reading
from tests.harness.servers import RedisServer
from tests.harness.spark import reads

HEADERS: dict[str, str | bytes | int | float | bool | None] = {
    "text": "ä",
    "bytes": b"\xff\x00",
    "int": 7,
    "float": 1.5,
    "yes": True,
    "none": None,
}
AS_TEXT = {"text": "ä", "bytes": base64.b64encode(b"\xff\x00").decode(), "int": "7", "float": "1.5", "yes": "true"}
STATES: tuple[State, ...] = ("pending", "ready", "unack", "retry", "dead")


@pytest.fixture
def queue(redis_server: RedisServer) -> Iterator[Queue]:
    with Queue("mail", url=redis_server.url, shards=3) as queue:
        yield queue


@pytest.fixture
def options(redis_server: RedisServer) -> dict[str, str]:
    return {"url": redis_server.url, "queue": "mail"}


def fill(queue: Queue) -> None:
    """Put messages of every kind into every state."""
    now = [Outgoing({"n": n}, id=f"now-{n}", headers=HEADERS, max_retries=9) for n in range(40)]
    later = [Outgoing({"n": n}, id=f"later-{n}", delay=3600 + n, expires_in=9000) for n in range(20)]
    queue.send_many([*now, *later, Outgoing(b"\x00\xff", id="raw", delay=7200), Outgoing("☃", id="ü", delay=1)])
    taken = [message for _ in range(3) for message in queue.receive(8)]
    for message in taken[:6]:
        message.nack(delay=600, error=ValueError("no ☃ today"))
    for message in taken[6:12]:
        message.reject("unwanted", error="broken")
    assert [queue.cancel(message.id) for message in taken[-2:]] == ["in_flight"] * 2


def row_of(info: MessageInfo) -> dict[str, Any]:
    """Return what the row of a message should contain."""
    found = {field: getattr(info, field) for field in (*info.__struct_fields__, "body", "task")}
    sent = found.pop("envelope")
    del found["retries_used"], found["timeout"]  # derived from the deliveries and the envelope, which a row has
    del found["member_of"], found["progress"]  # not among the columns
    headers = None if info.headers is None else (AS_TEXT | {"none": None} if info.headers else {})
    payload = sent.body.decode() if sent is not None and sent.kind else None
    return found | {"headers": headers, "payload": payload}


def test_rows_hold_what_the_queue_reports_for_each_message(
    queue: Queue, options: dict[str, str], redis_client: redis.Redis
):
    fill(queue)
    rows = reads.read(options)
    expected = [info for state in STATES for info in queue.peek(state, 1000)]
    assert {info.state for info in expected} == set(STATES)
    assert sum(info.cancelled for info in expected) == 2
    by_id = {row["id"]: row for row in rows}
    assert len(rows) == len(expected) == 62
    for info in expected:
        row = by_id[info.id]
        stored: Any = redis_client.get(queue._context.shard(info.id).keys.message(info.id))
        assert row.pop("envelope") == stored[13:]
        assert Deliveries.read(row.pop("deliveries")).past == info.attempts - (info.state == "unack")
        assert row == row_of(info)


def test_messages_with_the_same_score_are_read_once_by_several_tasks(queue: Queue, options: dict[str, str]):
    due = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    queue.send_many([Outgoing(n, id=f"{n}", at=due) for n in range(5000)])
    tasks = reads.by_task(options | {"columns": "id", "partitions": "7"})
    assert {len(task) for task in tasks} == {714, 715}
    assert reads.ids([row for task in tasks for row in task]) == sorted(f"{n}" for n in range(5000))


def test_messages_that_stay_are_read_once_while_others_come_and_go(queue: Queue, options: dict[str, str]):
    due = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    queue.send_many([Outgoing(n, id=f"stays-{n}", at=due) for n in range(3000)])
    done = threading.Event()
    turns = 0

    def come_and_go() -> None:
        nonlocal turns
        with Queue("mail", url=options["url"], shards=3) as others:
            while not done.is_set():
                for at in (due - dt.timedelta(seconds=1), due):
                    others.send_many([Outgoing(n, id=f"a{n}", at=at) for n in range(300)])
                    for n in range(300):
                        others.cancel(f"a{n}")
                turns += 1

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        while turns < 2:
            rows = reads.read(options | {"columns": "id,payload", "partitions": "5"})
            stayed = [row for row in rows if row["id"].startswith("stays-")]
            assert sorted(int(row["payload"]) for row in stayed) == list(range(3000))
    finally:
        done.set()
        thread.join()


def test_messages_added_in_front_during_planning_push_none_out(
    queue: Queue, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    due = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    queue.send_many([Outgoing(n, id=f"stays-{n}", at=due) for n in range(100)])
    divide = partitions.divide

    def send_meanwhile(counts: Sequence[int], most: int) -> list[list[partitions.RankRange]]:
        queue.send_many([Outgoing("in front", delay=60) for _ in range(50)])
        return divide(counts, most)

    monkeypatch.setattr(partitions, "divide", send_meanwhile)
    rows = reads.read(options | {"columns": "id", "partitions": "3"})
    assert sorted(row["id"] for row in rows if row["id"].startswith("stays")) == sorted(
        f"stays-{n}" for n in range(100)
    )


def test_task_reads_its_part_even_if_earlier_messages_have_gone(queue: Queue, options: dict[str, str]):
    queue.send_many([Outgoing(n, id=f"{n:04}", delay=1000 + n) for n in range(2000)])
    reader, parts = reads.parts(options | {"columns": "id", "partitions": "4"})
    gone = [f"{n:04}" for n in range(1990) if n % 10]
    for message_id in gone:
        queue.cancel(message_id)
    queue.send_many([Outgoing(0, id=f"new-{n}", delay=1) for n in range(1500)])
    rows = [row for part in parts for row in reads.rows(reader.read(part))]
    assert reads.ids([row for row in rows if row["id"] < "new"]) == sorted({f"{n:04}" for n in range(2000)} - set(gone))
    assert len({row["id"] for row in rows}) == len(rows)


def test_lower_bound_is_inclusive_and_upper_bound_exclusive(queue: Queue, options: dict[str, str]):
    start = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
    queue.send_many([Outgoing(n, id=f"{n}", at=start + dt.timedelta(seconds=n)) for n in range(10)])
    after = {"after": "2100-01-01T01:00:03+01:00", "columns": "id"}
    before = {"before": str(int((start + dt.timedelta(seconds=5)).timestamp() * 1000))}
    assert reads.ids(reads.read(options | after | before)) == ["3", "4"]
    assert reads.ids(reads.read(options | after)) == list("3456789")
    assert reads.ids(reads.read(options | before | {"columns": "id"})) == list("01234")


def test_states_and_dead_options_choose_what_is_read(queue: Queue, options: dict[str, str]):
    fill(queue)
    chosen = reads.read(options | {"states": "retry, unack", "columns": "state,reason,error,attempts"})
    assert {row["state"] for row in chosen} == {"retry", "unack"}
    dead = reads.read(options | {"read": "dead", "columns": "id,state,reason,error"})
    infos = queue.dead.list(limit=100)
    assert sorted(map(tuple, (row.values() for row in dead))) == sorted(
        (info.id, "dead", info.reason, info.error) for info in infos
    )


def test_ids_choose_what_is_read_within_the_other_options(queue: Queue, options: dict[str, str]):
    fill(queue)
    everything = reads.read(options)
    dead = reads.ids(reads.read(options | {"states": "dead"}))
    wanted = {*dead[:3], "ü", "now-8"}
    rows = reads.read(options | {"ids": ", ".join([*wanted, "gone"])})
    assert sorted(map(str, rows)) == sorted(str(row) for row in everything if row["id"] in wanted)
    listed = msgspec.json.encode([*wanted]).decode()
    assert reads.ids(reads.read(options | {"ids": listed, "states": "dead"})) == dead[:3]
    assert reads.read(options | {"ids": ",".join(wanted), "states": "pending", "before": "0"}) == []
    assert reads.read(options | {"ids": "[]"}) == []


def test_ids_may_contain_commas(queue: Queue, options: dict[str, str]):
    queue.send_many([Outgoing(0, id=each, delay=60) for each in ("a", "b", "a,b")])
    assert reads.ids(reads.read(options | {"ids": '["a,b"]'})) == ["a,b"]
    assert reads.ids(reads.read(options | {"ids": "a, b"})) == ["a", "b"]


def test_unwanted_columns_are_not_fetched(queue: Queue, options: dict[str, str], redis_client: redis.Redis):
    queue.send("x" * 1000, delay=60, id="a")
    redis_client.config_resetstat()
    assert reads.read(options | {"columns": "due_at,id"})[0].keys() == {"due_at", "id"}
    assert "cmdstat_mget" not in redis_client.info("commandstats")


def test_large_messages_are_fetched_a_few_at_a_time(queue: Queue, options: dict[str, str], redis_client: redis.Redis):
    queue.send_many([Outgoing(b"x" * 400_000, id=f"{n}", delay=60) for n in range(60)])
    redis_client.config_resetstat()
    assert len(reads.read(options | {"partitions": "1", "columns": "id,max_retries"})) == 60
    assert redis_client.info("commandstats")["cmdstat_mget"]["calls"] >= 5


def test_server_is_asked_for_sizes_only_if_a_large_message_was_ever_stored(
    queue: Queue, options: dict[str, str], redis_client: redis.Redis
):
    queue.send_many([Outgoing(b"x", id=f"{n}", delay=60) for n in range(600)])
    redis_client.config_resetstat()
    assert len(reads.read(options)) == 600
    assert "cmdstat_strlen" not in redis_client.info("commandstats")
    queue.send_many([Outgoing(b"x" * 10_000, delay=60) for _ in range(10)])
    assert len(reads.read(options)) == 610
    assert "cmdstat_strlen" in redis_client.info("commandstats")


def test_large_messages_behind_small_ones_are_fetched_a_few_at_a_time(
    queue: Queue, options: dict[str, str], redis_client: redis.Redis
):
    queue.send_many([Outgoing(b"x", delay=60) for _ in range(600)])
    queue.send_many([Outgoing(b"x" * 400_000, delay=90) for _ in range(60)])
    redis_client.config_resetstat()
    assert len(reads.read(options | {"partitions": "1", "columns": "id,max_retries"})) == 660
    assert redis_client.info("commandstats")["cmdstat_mget"]["calls"] >= 6  # of at most 4 MiB each


@pytest.mark.parametrize("column", ["id", "body"])
def test_message_with_an_overwritten_envelope_is_still_read(
    queue: Queue, options: dict[str, str], redis_client: redis.Redis, column: str
):
    sent = queue.send("x", delay=60)
    key = queue._context.shard(sent.id).keys.message(sent.id)
    redis_client.delete(key)
    redis_client.sadd(key, "mine")
    assert len(reads.read(options | {"columns": f"{column},state"})) == 1


def test_message_without_an_envelope_is_a_row_of_nulls(
    queue: Queue, options: dict[str, str], redis_client: redis.Redis
):
    queue.send("x", delay=60, id="a")
    keys = queue._context.shard("a").keys
    redis_client.delete(keys.message("a"))
    redis_client.zadd(keys.pending, {b"\xff": 5e300})
    rows = {row["id"]: row for row in reads.read(options)}
    assert rows.keys() == {"a", "\\xff"}
    nulls = ("created_at", "max_retries", "headers", "payload", "body", "envelope")
    assert {row[name] for row in rows.values() for name in nulls} == {None}
    assert rows["\\xff"]["due_at"].year == 9999


def test_empty_queue_is_read_as_no_rows(queue: Queue, options: dict[str, str]):
    queue.cancel(queue.send("x", delay=60).id)
    with structlog.testing.capture_logs() as logs:
        assert reads.read(options | {"states": "pending", "failOnMissing": "true"}) == []
    assert logs == []


@pytest.mark.parametrize("read", ["messages", "dead", "stats", "schedules"])
def test_missing_queue_is_reported(options: dict[str, str], read: str):
    with structlog.testing.capture_logs() as logs:
        assert len(reads.read(options | {"read": read})) == (read == "stats")
    assert [(line["event"], line["what"]) for line in logs] == [("nothing to read", "queue mail")]
    with pytest.raises(InvalidInput, match="queue mail does not exist: check its name and the options url and prefix"):
        reads.read(options | {"read": read, "failOnMissing": "true"})


def test_options_ignore_case_and_underscores(queue: Queue, options: dict[str, str]):
    queue.send("x", delay=60, id="a")
    assert reads.read({"URL": options["url"], "Queue": "mail", "fail_on_missing": "TRUE", "Columns": "ID,State"}) == [
        {"id": "a", "state": "pending"}
    ]
    assert reads.ids(reads.read({"url": options["url"], "path": "mail", "states": "PENDING"})) == ["a"]


def test_stats_are_those_of_the_queue(queue: Queue, options: dict[str, str]):
    fill(queue)
    queue.pause()
    before = queue.stats()
    (row,) = reads.read(options | {"read": "stats"})
    after = msgspec.structs.asdict(queue.stats())
    assert before.at <= row["at"] <= after["at"]
    assert row == after | {"at": row["at"]}
    assert row["lateness"]


def test_schedules_are_those_of_the_queue(queue: Queue, options: dict[str, str]):
    queue.schedules.add("nightly", "0 3 * * *", {"report": 1}, timezone="Europe/Berlin", missed="skip", grace=90)
    queue.schedules.add("bytes", "every 90s", b"\xff", max_retries=0)
    queue.schedules.pause("bytes")
    rows = reads.read(options | {"read": "schedules"})
    infos = [msgspec.structs.asdict(each) for each in queue.schedules.list()]
    payloads = {"nightly": '{"report":1}', "bytes": None}
    assert rows == [
        {name: info[name] for name in row} | {"payload": payloads[info["name"]]}
        for row, info in zip(rows, infos, strict=True)
    ]


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"read": "message"}, "'message': give messages, dead, stats or schedules"),
        ({"states": "pending,gone"}, "'gone': give any of pending"),
        ({"read": "dead", "states": "dead"}, '"states" for a batch of dead'),
        ({"after": "yesterday"}, "'yesterday': give milliseconds since 1970, or a time"),
        ({"before": "2026-01-01T00:00:00"}, "has no time zone"),
        ({"columns": "id,size"}, "'size': give any of id, queue"),
        ({"partitions": "0"}, "'0': give a whole number from 1"),
        ({"befor": "0"}, 'unknown option "befor" for'),
        ({"pushFilters": "true"}, 'unknown option "pushFilters" for a batch of messages; .*states, after, before, ids'),
        ({"ids": "[1]"}, 'the option "ids" is not a JSON array of strings'),
        ({"fail_on_missing": "ture"}, """the option "fail_on_missing" is 'ture': give true or false"""),
        ({"events": "mail"}, "queue and events to read: give one of"),
        ({"path": "letters"}, r'"queue" \(mail\) and "path" \(letters\) mean the same: give one'),
        ({"url": "redis://:secret@nowhere:1/x"}, "has the database 'x'"),
    ],
)
def test_invalid_option_is_named_with_its_remedy(options: dict[str, str], option: dict[str, str], expected: str):
    with pytest.raises(InvalidInput, match=expected) as refused:
        reads.read(options | option)
    assert "secret" not in str(refused.value)


def test_messages_cannot_be_streamed(options: dict[str, str]):
    with pytest.raises(InvalidInput, match=r"cannot be streamed.*ledger"):
        reading.stream_reader(options, reads.schema(options))


def test_spark_reads_all_messages(spark: SparkSession, queue: Queue, options: dict[str, str]):
    fill(queue)
    frame = spark.read.format("delayq").options(**options, partitions="3").load()
    assert frame.rdd.getNumPartitions() == 3
    found = {row["id"]: row for row in frame.collect()}
    expected = {row["id"]: row for row in reads.read(options)}
    assert {key: row["payload"] for key, row in found.items()} == {key: row["payload"] for key, row in expected.items()}
    assert {key: row["headers"] for key, row in found.items()} == {key: row["headers"] for key, row in expected.items()}
    assert {key: row["body"] for key, row in found.items()} == {key: row["body"] for key, row in expected.items()}
    assert {key: row["due_at"] for key, row in found.items() if row["due_at"]} == {
        key: row["due_at"].replace(tzinfo=None) for key, row in expected.items() if row["due_at"]
    }


def test_load_takes_the_queue_and_a_schema_chooses_columns_in_any_case(
    spark: SparkSession, queue: Queue, options: dict[str, str]
):
    queue.send("x", delay=60, id="a")
    reader = spark.read.format("delayq").option("url", options["url"])
    frame = reader.schema("State string, ID string, payload string").load("mail").where("state = 'pending'")
    assert [row.asDict() for row in frame.collect()] == [{"State": "pending", "ID": "a", "payload": '"x"'}]


def test_password_is_shown_nowhere(
    spark: SparkSession, redis_server: RedisServer, queue: Queue, capsys: pytest.CaptureFixture[str]
):
    queue.send("x", delay=60, id="a")
    url = redis_server.url + ("&" if "?" in redis_server.url else "?") + "password=hush-hush"
    frame = spark.read.format("delayq").options(url=url, queue="mail").load()
    frame.explain(extended=True)
    plan = capsys.readouterr().out
    assert "delayq" in plan
    with pytest.raises(Exception, match="password") as refused:
        frame.collect()
    reader = reading.reader({"url": url, "queue": "mail"}, frame.schema)
    shown = [plan, str(refused.value), repr(reader), repr(reader.__dict__)]
    assert [text for text in shown if "hush" in text] == []
