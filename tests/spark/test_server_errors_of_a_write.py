"""A server's error in the middle of a write says what is stored and how to continue, and shows no password."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from delayq import Outgoing, Queue, QueueFull
from delayq.errors import LoginRefused, ServerError, ServerNotReady, ServerOutOfMemory, ServerUnreachable
from delayq.spark.jobs.dead_letter_edits import DeadLetterEditor
from delayq.spark.jobs.drain import Discarder
from delayq.spark.jobs.restore import Restorer
from delayq.spark.jobs.schedule import schedule
from delayq.spark.redis_options import RedisOptions
from delayq.spark.writing.sink import Sink
from tests.conftest import StartServer
from tests.harness.servers import RedisServer

PASSWORD = "s3cr3t-word"


@pytest.fixture
def server(start_server: StartServer) -> RedisServer:
    return start_server(port=True, config={"requirepass": PASSWORD})


def address(server: RedisServer) -> str:
    return f"redis://:{PASSWORD}@127.0.0.1:{server.port}/0"


def fill(server: RedisServer) -> None:
    with server.client(password=PASSWORD) as client:
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 2_000_000)


def make_read_only(server: RedisServer) -> None:
    with server.client(password=PASSWORD) as client:
        client.replicaof("127.0.0.1", 1)


def take_rights(server: RedisServer) -> None:
    with server.client(password=PASSWORD) as client:
        client.acl_setuser("default", enabled=True, commands=["-evalsha", "-eval"], keys=["*"])


def die(server: RedisServer) -> None:
    server.kill()


TROUBLES: list[tuple[Callable[[RedisServer], None], type[ServerError]]] = [
    (fill, ServerOutOfMemory),
    (make_read_only, ServerNotReady),
    (take_rights, LoginRefused),
    (die, ServerUnreachable),
]


def stored_rows(text: str) -> int:
    found = re.search(r"([\d,]+) rows of partition 0 are stored", text)
    assert found is not None, text
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(("trouble", "kind"), TROUBLES, ids=["full", "read-only", "rights", "away"])
def test_error_in_the_middle_of_a_write_says_what_is_stored_and_a_rerun_completes_it(
    server: RedisServer, trouble: Callable[[RedisServer], None], kind: type[ServerError]
) -> None:
    columns = {
        "id": pa.nulls(9000, pa.string()),
        "payload": ["x" * 500] * 9000,
        "delay": pa.array([60] * 9000, pa.int32()),
    }
    batch = pa.record_batch(columns)
    schema = StructType().add("id", "string").add("payload", "string").add("delay", "integer")
    options = {"url": address(server), "queue": "jobs", "waitFor": "0"}

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 3000)
        trouble(server)
        yield batch.slice(3000)

    with pytest.raises(kind) as failed:
        Sink(options, schema).write(rows())
    text = str(failed.value)
    assert PASSWORD not in text
    assert "nothing was stored" not in text
    stored = stored_rows(text)
    run = re.search(r'run "([^"]+)"', text)
    assert run is not None, text
    if trouble is die:
        assert stored == 3000
        return
    with server.client(password=PASSWORD) as client:
        client.replicaof("NO", "ONE")
        client.config_set("maxmemory", 0)
        client.acl_setuser("default", enabled=True, commands=["+@all"], keys=["*"])
    with Queue("jobs", url=address(server)) as queue:
        assert queue.stats().sent == stored
        Sink({**options, "run": run[1]}, schema).write(iter([batch.slice(0, 3000), batch.slice(3000)]))
        assert queue.stats().sent == 9000


def test_job_that_fills_the_memory_says_what_is_stored_and_a_rerun_completes_it(
    spark: SparkSession, server: RedisServer
) -> None:
    rows = spark.range(20_000, numPartitions=1).selectExpr(
        "CAST(id AS STRING) id", "repeat('x', 500) payload", "60 delay"
    )
    to = RedisOptions(address(server))
    fill(server)
    with pytest.raises(ServerOutOfMemory) as failed:
        schedule(spark, rows, to, "jobs")
    text = str(failed.value)
    assert PASSWORD not in text
    assert "nothing was stored" not in text
    assert "a rerun with run " in text
    assert "maxmemory" in text
    with server.client(password=PASSWORD) as client:
        client.config_set("maxmemory", 0)
    with Queue("jobs", url=address(server)) as queue:
        assert 0 < queue.stats().sent == stored_rows(text)
        assert schedule(spark, rows, to, "jobs").existing == stored_rows(text)
        assert queue.stats().sent == 20_000


def letters(server: RedisServer, count: int) -> pa.RecordBatch:
    """Dead letters, as a task of a redrive gets them."""
    with Queue("jobs", url=address(server)) as queue:
        queue.send_many([Outgoing("x", id=f"m{number}") for number in range(count)])
        while messages := queue.receive(500):
            for message in messages:
                message.reject("unwanted")
        found = queue.dead.list(limit=count)
    utc = pa.timestamp("us", "UTC")
    died = pa.array([letter.died_at for letter in found], utc)
    columns = dict.fromkeys(("died_at", "due_at", "at"), died)
    columns["created_at"] = pa.array([letter.created_at for letter in found], utc)
    columns |= {name: pa.nulls(count, pa.binary()) for name in ("envelope", "deliveries", "error", "reason")}
    return pa.record_batch({"id": [letter.id for letter in found], "state": ["dead"] * count} | columns)


@pytest.mark.by_lot(3)
@pytest.mark.parametrize(("trouble", "kind"), TROUBLES[1:], ids=["read-only", "rights", "away"])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (
            lambda to: DeadLetterEditor(to, "jobs", None, 0, None),
            "200 dead letters of this task are sent again: a second",
        ),
        (
            lambda to: Discarder(to, "jobs"),
            "200 messages of this task are removed, unless they had changed: all are in",
        ),
        (lambda to: Restorer(to, "other"), "200 messages of this task are restored: a second run"),
    ],
    ids=["redrive", "drain", "restore"],
)
def test_error_in_the_middle_of_a_job_says_what_is_done(
    server: RedisServer,
    trouble: Callable[[RedisServer], None],
    kind: type[ServerError],
    make: Callable[[RedisOptions], Any],
    expected: str,
) -> None:
    batch = letters(server, 400)

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 200)
        trouble(server)
        yield batch.slice(200)

    with pytest.raises(kind) as failed:
        list(make(RedisOptions(address(server), wait_for=0))(rows()))
    assert expected in str(failed.value)
    assert PASSWORD not in str(failed.value)


def test_job_that_fills_a_bounded_queue_says_what_is_stored_and_a_rerun_completes_it(
    spark: SparkSession, server: RedisServer
) -> None:
    rows = spark.range(1000, numPartitions=1).selectExpr("CAST(id AS STRING) id", "'x' payload", "60 delay")
    to = RedisOptions(address(server))
    with Queue("jobs", url=address(server)) as queue:
        queue.configure(max_length=300)
        with pytest.raises(QueueFull, match="queue jobs is full, with max_length 300: ") as failed:
            schedule(spark, rows, to, "jobs")
        assert "a rerun with run " in str(failed.value)
        assert "configure a higher max_length" in str(failed.value)
        assert stored_rows(str(failed.value)) == queue.stats().sent == 300
        queue.configure(max_length=None)
        assert schedule(spark, rows, to, "jobs").existing == 300
        assert queue.stats().sent == 1000
