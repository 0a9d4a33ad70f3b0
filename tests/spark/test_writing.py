"""Sending tables: each row is sent once, however often a task or a job runs."""

from __future__ import annotations

import datetime as dt
import pickle
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import InheritableThread, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from delayq import Queue
from delayq.errors import InvalidInput, RowRefused
from delayq.spark.writing.sink import Sink
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.spark.tables import DUE, payloads, table, write, written
from tests.harness.waiting import eventually


def test_rows_become_messages_with_everything_in_their_columns(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    later = DUE + dt.timedelta(hours=1)
    rows = [("a", "text", DUE, {"k": "v"}, 7, later, 1.5), ("b", "other", later, None, None, None, None)]
    columns = (
        "id string, payload string, due_at timestamp, headers map<string,string>, max_retries int, "
        "expires_at timestamp, timeout double"
    )
    report = written(table(spark, rows, columns), redis_server.url, tmp_path)
    assert report == {"queue": "jobs", "sent": 2, "existing": 0, "rejected": 0}
    with Queue("jobs", url=redis_server.url) as queue:
        first, second = queue.peek("pending")
        assert (first.id, first.payload, first.due_at) == ("a", "text", DUE)
        assert (first.headers, first.max_retries, first.timeout) == ({"k": "v"}, 7, 1.5)
        assert first.expires_at is not None
        assert abs(first.expires_at - later) < dt.timedelta(minutes=1)
        assert (second.id, second.payload, second.due_at) == ("b", "other", later)
        assert (second.headers, second.max_retries, second.expires_at, second.timeout) == ({}, 5, None, None)


@pytest.mark.by_lot(4)
@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ("'text'", "text"),
        ("CAST('raw' AS BINARY)", b"raw"),
        ("named_struct('n', 1, 'at', TIMESTAMP'2030-01-01T00:00:00Z')", {"n": 1, "at": "2030-01-01T00:00:00Z"}),
        ("named_struct('m', map('k', 1.5D), 'none', CAST(NULL AS INT))", {"m": {"k": 1.5}, "none": None}),
        ("array('x', 'y')", ["x", "y"]),
        ("map('k', 'v')", {"k": "v"}),
        ('parse_json(\'{"n": 1.50, "text": "ä"}\')', {"n": 1.5, "text": "ä"}),
        (
            "named_struct('v', parse_json('{\"n\": [1, null]}'), 'l', array(parse_json('true')))",
            {"v": {"n": [1, None]}, "l": [True]},
        ),
    ],
)
def test_payload_is_received_as_its_column_holds_it(
    spark: SparkSession, redis_server: RedisServer, payload: str, expected: object
) -> None:
    write(spark.sql(f"SELECT {payload} AS payload, 60 AS delay"), redis_server.url)
    with Queue("jobs", url=redis_server.url) as queue:
        assert payloads(queue) == [expected]


def test_text_column_can_hold_the_payload_as_json(spark: SparkSession, redis_server: RedisServer) -> None:
    rows = spark.sql("""SELECT '{"n": 1.50, "text": "null"}' AS payload, 60 AS delay""")
    write(rows, redis_server.url, payload_format="json")
    with Queue("jobs", url=redis_server.url) as queue:
        (info,) = queue.peek("pending")
        assert info.payload == {"n": 1.5, "text": "null"}
        assert info.body == b'{"n": 1.50, "text": "null"}'


def test_fraction_of_a_millisecond_makes_nothing_due_early(spark: SparkSession, redis_server: RedisServer) -> None:
    moment = dt.datetime(2030, 1, 1, 0, 0, 0, 1001, dt.UTC)
    write(table(spark, [("x", moment)], "payload string, due_at timestamp"), redis_server.url)
    with Queue("jobs", url=redis_server.url) as queue:
        assert queue.peek("pending")[0].due_at == dt.datetime(2030, 1, 1, 0, 0, 0, 2000, dt.UTC)


@pytest.mark.by_lot(2)
@pytest.mark.parametrize("shards", [1, 3])
def test_rerun_sends_nothing_again_even_if_everything_was_acked(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path, shards: int
) -> None:
    rows = spark.range(2500).select(
        f.format_string("m%d", "id").alias("id"), f.lit("x").alias("payload"), f.lit(0).alias("delay")
    )
    with Queue("jobs", url=redis_server.url, shards=shards) as queue:
        queue.pause()
        queue.resume()  # this records the number of shards
        assert written(rows, redis_server.url, tmp_path)["sent"] == 2500
        seen: Counter[str] = Counter()
        while messages := queue.receive(500):
            seen.update(message.id for message in messages)
            assert all(queue.ack(messages))
        assert seen == {f"m{n}": 1 for n in range(2500)}
        assert written(rows, redis_server.url, tmp_path) == {
            "queue": "jobs",
            "sent": 0,
            "existing": 2500,
            "rejected": 0,
        }
        assert (queue.stats().sent, queue.stats().inside) == (2500, 0)


def test_repeated_task_sends_no_row_without_an_id_twice(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    """The second attempt has the rows in another order, and some of them are equal."""
    url = redis_server.url

    def stumble(numbers: Iterable[int]) -> Iterator[tuple[str, int]]:
        context = TaskContext.get()
        assert context is not None
        again = context.attemptNumber() > 0
        rows = [(f"{number % 700}" + "x" * 1000, 60) for number in numbers]
        yield from rows[::-1][:1000] if again else rows[:1000]
        if not again:
            with Queue("jobs", url=url) as queue:
                assert eventually(lambda: queue.stats().sent > 0)
            raise RuntimeError("in the middle")
        yield from rows[::-1][1000:]

    rows = spark.sparkContext.range(3000, numSlices=2).mapPartitions(stumble)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    try:
        report = written(spark.createDataFrame(rows, "payload string, delay int"), url, tmp_path)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert report["sent"] + report["existing"] == 3000
    assert report["existing"] > 0
    with Queue("jobs", url=url) as queue:
        assert Counter(text.rstrip("x") for text in payloads(queue)) == Counter(str(n % 700) for n in range(3000))
        assert queue.stats().sent == 3000


def test_named_run_sends_nothing_twice_and_another_run_sends_again(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    rows = table(spark, [("x", 60), ("x", 60), ("y", 60)], "payload string, delay int")
    assert written(rows, redis_server.url, tmp_path, run="monday")["sent"] == 3
    assert written(rows, redis_server.url, tmp_path, run="monday")["sent"] == 0
    assert written(rows, redis_server.url, tmp_path, run="tuesday")["sent"] == 3
    assert written(rows, redis_server.url, tmp_path)["sent"] == 3


def test_without_a_reservation_an_id_is_free_after_the_ack(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    rows = table(spark, [("a", "x", 0)], "id string, payload string, delay int")
    with Queue("jobs", url=redis_server.url) as queue:
        for expected in (1, 1):
            assert written(rows, redis_server.url, tmp_path, unique_for="0")["sent"] == expected
            (message,) = queue.receive()
            message.ack()


def test_first_unsendable_row_fails_the_job_and_is_named(spark: SparkSession, redis_server: RedisServer) -> None:
    rows = table(spark, [("a", "x", DUE), ("late", "x", None)], "id string, payload string, due_at timestamp", 1)
    with pytest.raises(Exception, match=r"row 1 of partition 0 \(id 'late'\) cannot be sent: due_at is null"):
        write(rows, redis_server.url)
    with Queue("jobs", url=redis_server.url) as queue:
        assert queue.stats().sent == 0


def test_unsendable_rows_are_rejected_with_their_reasons(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    rows = [
        ("a", "x", 1.0, 1),
        ("b", None, 1.0, 1),
        ("c", "x", None, 1),
        ("d", "x", -1.0, 1),
        ("e", "x" * 2_000_000, 1.0, 1),
        ("f", "x", 1.0, -1),
        ("g" * 300, "x", 1.0, 1),
        (None, "x", 1.0, None),
    ]
    report = written(
        table(spark, rows, "id string, payload string, delay double, max_retries int"),
        redis_server.url,
        tmp_path,
        mode="PERMISSIVE",
        rejects=str(tmp_path / "rejects"),
    )
    assert report == {"queue": "jobs", "sent": 2, "existing": 0, "rejected": 6}
    rejects = {row["id"]: row["reason"] for row in pq.read_table(tmp_path / "rejects").to_pylist()}
    assert rejects["b"] == "payload is null"
    assert rejects["c"] == "delay is null"
    assert "-1.0 is not 0 or more seconds" in rejects["d"]
    assert "2,000,002 bytes" in rejects["e"]
    assert "max_retries -1" in rejects["f"]
    assert "300 bytes long" in rejects["g" * 300]


FAR = "timestamp_seconds(1893456000000L)"  # milliseconds of 2030


def test_rows_with_headers_of_delayq_are_rejected(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    headers = {"a": {"k": "v"}, "b": {"k": "v", "delayq-slot": "1"}, "c": {"Delayq-": ""}}
    rows = [(message_id, "x", 1.0, given) for message_id, given in headers.items()]
    columns = "id string, payload string, delay double, headers map<string,string>"
    report = written(
        table(spark, rows, columns),
        redis_server.url,
        tmp_path,
        mode="PERMISSIVE",
        rejects=str(tmp_path / "rejects"),
    )
    assert report == {"queue": "jobs", "sent": 1, "existing": 0, "rejected": 2}
    reasons = [row["reason"] for row in pq.read_table(tmp_path / "rejects").to_pylist()]
    assert all("is reserved" in reason for reason in reasons)


def test_row_with_a_time_outside_python_s_range_is_rejected_and_can_be_fixed_and_sent(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    rows = spark.sql(f"""
        SELECT * FROM VALUES
            ('good', named_struct('at', current_timestamp(), 'n', 1), timestamp_seconds(1893456000), 1),
            ('ms', named_struct('at', current_timestamp(), 'n', 2), {FAR}, 2),
            ('within', named_struct('at', {FAR}, 'n', 3), timestamp_seconds(1893456000), 3)
        AS (id, payload, due_at, max_retries)
    """).coalesce(1)
    rejects = str(tmp_path / "rejects")
    report = written(rows, redis_server.url, tmp_path, mode="PERMISSIVE", rejects=rejects)
    assert report == {"queue": "jobs", "sent": 1, "existing": 0, "rejected": 2}
    aside = spark.read.parquet(rejects)
    reasons = {row["id"]: row["reason"] for row in aside.select("id", "reason").collect()}
    assert reasons["ms"].startswith("due_at is 1893456000000 seconds after 1970")
    assert "looks like milliseconds read as seconds, for 2030-01-01T00:00:00Z" in reasons["ms"]
    assert reasons["within"].startswith("payload.at is 1893456000000 seconds after 1970")
    seconds = f.when(f.col("id") == "ms", f.unix_seconds("due_at") / 1000).otherwise(f.unix_seconds("due_at"))
    mended = aside.select(
        "id", f.col("payload").dropFields("at").alias("payload"), f.timestamp_seconds(seconds).alias("due_at")
    )
    write(mended, redis_server.url)
    with Queue("jobs", url=redis_server.url) as queue:
        due = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
        assert {info.id: info.due_at for info in queue.peek("pending")} == dict.fromkeys(("good", "ms", "within"), due)
        assert [info.payload["n"] for info in queue.peek("pending")] == [1, 2, 3]


def test_unconvertible_row_fails_the_job_and_is_named_with_the_remedy(
    spark: SparkSession, redis_server: RedisServer
) -> None:
    rows = spark.sql(f"SELECT 'x' AS payload, 'late' AS id, {FAR} AS due_at")
    with pytest.raises(Exception, match=r"row 0 of partition 0 \(id 'late'\) cannot be sent: due_at .*divide by 1000"):
        write(rows, redis_server.url)


@pytest.mark.parametrize(
    ("kind", "bad", "expected"),
    [
        (pa.map_(pa.string(), pa.int32()), [("k", 1), ("k", 2)], "payload has the same key more than once: 'k'"),
        (pa.struct([("n", pa.float64())]), {"n": float("nan")}, "payload.n is nan, which JSON cannot hold"),
        (pa.list_(pa.timestamp("us", "UTC")), [2**62], "payload[] is 4611686018427 seconds after 1970"),
    ],
)
def test_payload_that_is_not_json_is_rejected_and_the_rows_around_it_are_sent(
    redis_server: RedisServer, tmp_path: Path, kind: pa.DataType, bad: object, expected: str
) -> None:
    rows = pa.table(
        {
            "ID": ["a", "b", "c"],
            "payload": pa.array([{}, bad, {}] if pa.types.is_struct(kind) else [[], bad, []], kind),
            "delay": [60, 60, 60],
        }
    )
    options = {"url": redis_server.url, "queue": "jobs", "mode": "PERMISSIVE", "rejects": str(tmp_path), "run": "r"}
    Sink(options, from_arrow_schema(rows.schema)).write(iter(rows.to_batches()))
    with Queue("jobs", url=redis_server.url) as queue:
        assert [info.id for info in queue.peek("pending")] == ["a", "c"]
    (reject,) = pq.read_table(tmp_path, columns=["id", "partition", "row", "reason", "delay"]).to_pylist()
    assert reject.pop("reason").startswith(expected)
    assert reject == {"id": "b", "partition": 0, "row": 1, "delay": 60}


UTC_TIME = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"delay": pa.array([float("nan")])}, "delay nan is not 0 or more seconds"),
        ({"delay": pa.array([float("inf")])}, "delay inf is past the year 9999"),
        ({"delay": pa.array([60]), "timeout": pa.array([float("nan")])}, "timeout nan is not "),
        (
            {"delay": pa.array([60]), "due_at": pa.array([DUE], UTC_TIME)},
            "due_at is 2030-01-02 09:00:00.250000+00:00 and",
        ),
        ({"due_at": pa.array([-1], UTC_TIME)}, "due_at is 1969-12-31 23:59:59.999999+00:00, which is before 1970"),
        (
            {"delay": pa.array([1]), "expires_at": pa.array([0], UTC_TIME)},
            "expires_at is 1970-01-01 00:00:00+00:00, which",
        ),
    ],
)
def test_reason_of_a_rejected_row_names_its_column(
    redis_server: RedisServer, tmp_path: Path, columns: dict[str, pa.Array], expected: str
) -> None:
    rows = pa.record_batch({"payload": ["x"]} | columns)
    options = {"url": redis_server.url, "queue": "jobs", "mode": "PERMISSIVE", "rejects": str(tmp_path)}
    Sink(options, from_arrow_schema(rows.schema)).write(iter([rows]))
    (reject,) = pq.read_table(tmp_path).to_pylist()
    assert reject["reason"].startswith(expected)


def test_column_names_ignore_case(redis_server: RedisServer) -> None:
    kinds = StructType().add("ID", "string").add("Payload", "string").add("DELAY", "integer")
    sink = Sink({"url": redis_server.url, "queue": "jobs"}, kinds)
    sink.write(iter([pa.record_batch({"ID": ["a"], "Payload": ["x"], "DELAY": pa.array([60], pa.int32())})]))
    with Queue("jobs", url=redis_server.url) as queue:
        assert [(info.id, info.payload) for info in queue.peek("pending", 10)] == [("a", "x")]


def test_new_queue_gets_the_shards_and_a_row_the_size_of_the_options(redis_server: RedisServer) -> None:
    rows = pa.record_batch({"id": ["a"], "payload": ["x" * 2_000_000], "delay": pa.array([60], pa.int32())})
    kinds = StructType().add("id", "string").add("payload", "string").add("delay", "integer")
    options = {"url": redis_server.url, "queue": "jobs", "shards": "3"}
    with pytest.raises(RowRefused, match="2,000,002 bytes"):
        Sink(options, kinds).write(iter([rows]))
    Sink(options | {"maxPayload": "3000000"}, kinds).write(iter([rows]))
    with Queue("jobs", url=redis_server.url, shards=3) as queue:
        assert queue.stats().pending == 1
    with pytest.raises(InvalidInput, match=r"\"unique_for\" is 'soon'"):
        Sink(options | {"unique_for": "soon"}, kinds)
    with pytest.raises(InvalidInput, match=r"\"payloadFormat\" is 'xml'"):
        Sink(options | {"payloadformat": "xml"}, kinds)


def test_relative_folder_of_rejects_is_resolved_by_the_driver(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("driver", "executor"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "driver")
    options = {"url": redis_server.url, "queue": "jobs", "mode": "PERMISSIVE", "rejects": "rejects"}
    sink = Sink(options, StructType().add("id", "string").add("payload", "string").add("delay", "integer"))
    monkeypatch.chdir(tmp_path / "executor")
    pickle.loads(pickle.dumps(sink)).write(iter([pa.record_batch({"id": ["a"], "payload": [None], "delay": [1]})]))
    assert [row["id"] for row in pq.read_table(tmp_path / "driver" / "rejects").to_pylist()] == ["a"]


def test_rejects_of_a_run_are_only_those_of_its_last_attempt(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    def rejected(partitions: int, run: str) -> list[str]:
        rows = table(spark, [(each, None, 1) for each in "abcd"], "id string, payload string, delay int", partitions)
        written(rows, redis_server.url, tmp_path, run=run, mode="PERMISSIVE", rejects=str(tmp_path / "rejects"))
        return sorted(row["id"] for row in pq.read_table(tmp_path / "rejects").to_pylist())

    assert rejected(4, "r") == ["a", "b", "c", "d"]
    assert rejected(2, "r") == ["a", "b", "c", "d"]
    assert rejected(2, "r-0") == sorted("abcd" * 2)
    assert rejected(1, "r") == sorted("abcd" * 2)


@pytest.mark.parametrize(
    ("columns", "options", "expected"),
    [
        ("payload string, delay int, colour string", {}, "unknown column 'colour'; expected one of"),
        ("payload string", {}, "no column due_at or delay"),
        ("payload string, delay int, DELAY int", {}, "columns payload, delay, delay differ only in case"),
        ("text string, delay int", {}, "unknown column 'text'; expected one of"),
        ("payload string, due_at string", {}, "column 'due_at' is string: make it a timestamp"),
        ("payload string, due_at timestamp_ntz", {}, "column 'due_at' is timestamp_ntz: make it a timestamp"),
        ("payload int, delay int", {}, "column 'payload' is int"),
        ("payload struct<i: interval month>, delay int", {}, "payload.i is interval month, which JSON cannot hold"),
        (
            "payload array<map<struct<a: int>, int>>, delay int",
            {},
            r"payload\[\] is a map whose keys are struct<a:int>",
        ),
        (
            "payload struct<n: array<struct<a: int, a: int>>>, delay int",
            {},
            r"payload.n\[\] has more than one field 'a'",
        ),
        ("payload string, delay int, timeout string", {}, "column 'timeout' is string: make it a number of seconds"),
        ("payload string, delay int", {"mode": "LENIENT"}, "'LENIENT': give FAILFAST or PERMISSIVE"),
        ("payload string, delay int", {"mode": "permissive"}, 'the option "rejects" is missing'),
        ("payload string, delay int", {"uniqe_for": "60"}, 'unknown option "uniqe_for" for a write; expected one of'),
        ("payload string, delay int", {"unique_for": "a day"}, "'a day': give seconds"),
        ("payload string, delay int", {"payload_format": "xml"}, "'xml': give text or json"),
        ("payload string, delay int", {"queue": ""}, 'the option "queue" is empty'),
        ("payload string, delay int", {"payload_format": "xml"}, 'the option "payload_format" is'),
        ("payload string, delay int", {"unique_for": "-1"}, 'the option "unique_for" is'),
        ("payload string, delay int", {"wait_for": "1e300"}, 'the option "wait_for" is'),
    ],
)
def test_invalid_table_or_option_is_refused_before_anything_is_sent(
    spark: SparkSession, tmp_path: Path, columns: str, options: dict[str, str], expected: str
) -> None:
    """A sink is made when a write is planned, before any of its tasks starts."""
    schema = spark.createDataFrame([], columns).schema
    with pytest.raises(InvalidInput, match=expected):
        Sink({"url": f"unix://{tmp_path}/nobody", "queue": "jobs"} | options, schema)


def test_refusal_of_a_table_reaches_the_program_that_writes_it(spark: SparkSession, redis_server: RedisServer) -> None:
    rows = spark.createDataFrame([], "payload string, delay int, colour string")
    with pytest.raises(Exception, match="unknown column 'colour'; expected one of"):
        write(rows, redis_server.url)
    with pytest.raises(Exception, match='the option "queue" is empty'):
        write(rows.drop("colour"), redis_server.url, queue="")


def test_threads_write_without_calling_session(spark: SparkSession, redis_server: RedisServer, tmp_path: Path) -> None:
    rows = table(spark, [("x", 60)], "payload string, delay int", 1)
    rate = spark.readStream.format("rate").load().selectExpr("'y' payload", "60 delay")

    def stream() -> None:
        options = {"url": redis_server.url, "queue": "jobs", "checkpointLocation": str(tmp_path / "checkpoint")}
        rate.writeStream.format("delayq").options(**options).start().stop()

    for kind in (threading.Thread, InheritableThread):
        thread = kind(target=partial(write, rows, redis_server.url))
        thread.start()
        thread.join()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write, rows, redis_server.url).result()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(stream).result()
    with Queue("jobs", url=redis_server.url) as queue:
        assert queue.stats().pending == 3


def test_queue_is_not_overwritten(spark: SparkSession, redis_server: RedisServer) -> None:
    rows = table(spark, [("x", 60)], "payload string, delay int")
    with pytest.raises(Exception, match="a queue cannot be overwritten"):
        rows.write.format("delayq").mode("overwrite").options(url=redis_server.url, queue="jobs").save()


def test_password_of_the_server_is_shown_nowhere(spark: SparkSession, start_server: StartServer) -> None:
    server = start_server(port=True, config={"requirepass": "s3cr3t-word"})
    address = f"127.0.0.1:{server.port}"
    rows = table(spark, [("x", 60)], "payload string, delay int", 1)
    write(rows, f"redis://:s3cr3t-word@{address}/0")
    for bad, shown in (("s3cr3t-word", f"@{address}/x"), ("0ther-s3cr3t", f"@{address}/0")):
        with pytest.raises(Exception, match=r"redis://\*\*\*|:\*\*\*@|refused|password") as refusal:
            write(rows, f"redis://:{bad}{shown}")
        assert bad not in str(refusal.value)


def test_stream_sends_each_row_once_even_if_a_batch_is_repeated(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    for name in ("one", "two"):
        rows = spark.range(300).select(f.format_string(f"{name} %d", "id").alias("payload"), f.lit(0).alias("delay"))
        rows.write.mode("append").parquet(str(source))

        def run() -> None:
            stream = spark.readStream.schema("payload string, delay int").parquet(str(source))
            sending = stream.writeStream.format("delayq").options(url=redis_server.url, queue="jobs")
            query = sending.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
            query.awaitTermination()

        run()
        with Queue("jobs", url=redis_server.url) as queue:
            seen: Counter[str] = Counter()
            while messages := queue.receive(500):
                seen.update(message.payload for message in messages)
                queue.ack(messages)
            assert seen == {f"{name} {n}": 1 for n in range(300)}
            last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
            for path in (
                last,
                last.with_name(f".{last.name}.crc"),
            ):  # as if killed before the batch was noted
                path.unlink()
            run()
            assert queue.receive(500) == []


def test_stream_writes_reject_files_only_for_tasks_with_rejects(
    spark: SparkSession, redis_server: RedisServer, tmp_path: Path
) -> None:
    source, rejects = tmp_path / "source", tmp_path / "rejects"
    source.mkdir()
    stream = spark.readStream.schema("payload string, delay int").parquet(str(source))
    sending = stream.writeStream.format("delayq").options(url=redis_server.url, queue="jobs", mode="PERMISSIVE")
    sending = sending.options(rejects=str(rejects), run="s", checkpointLocation=str(tmp_path / "checkpoint"))
    for payload in ("x", None, "y"):
        spark.createDataFrame([(payload, 0)], "payload string, delay int").write.mode("append").parquet(str(source))
        sending.trigger(availableNow=True).start().awaitTermination()
    assert [path.name.rpartition("-")[0] for path in rejects.iterdir()] == ["s-1"]
