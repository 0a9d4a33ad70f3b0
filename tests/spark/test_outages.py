"""Readers and writers wait for a server that is away, and do what they do once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import structlog
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

from delayq import Message, Queue, Topic
from delayq.errors import InvalidInput, ServerUnreachable
from delayq.operations.topics.publish import NewRecord
from delayq.spark import reading
from delayq.spark.reading.streams import StreamReader
from delayq.spark.redis_options import RedisOptions
from delayq.spark.writing.sink import Sink
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.spark import reads

ROWS = 3000
AWAY = 4.0  # seconds: clients of queues give up after two


@pytest.fixture
def server(start_server: StartServer) -> RedisServer:
    return start_server(config={"appendonly": "yes", "appendfsync": "always"})


def batches(first: str) -> pa.RecordBatch:
    ids = [f"{first}-{n}" for n in range(ROWS)]
    return pa.record_batch({"id": ids, "payload": ids, "delay": [0.0] * ROWS})


def away(server: RedisServer) -> threading.Timer:
    """Kill the server, and start it again later."""
    server.kill()
    back = threading.Timer(AWAY, server.start)
    back.start()
    return back


def test_outage_is_waited_out_by_source_and_sink_with_one_warning_each(server: RedisServer):
    options = {"url": server.url}
    with Queue("mail", url=server.url, events=True) as queue:
        queue.send("first")
    rows = batches("a")
    sink = Sink(options | {"queue": "mail"}, from_arrow_schema(rows.schema))
    stream = reading.stream_reader(options | {"events": "mail"}, reads.schema({"events": "mail"}))
    assert isinstance(stream, StreamReader)
    begun = stream.initialOffset()
    gone = threading.Event()

    def writing() -> Iterator[pa.RecordBatch]:
        yield rows
        away(server)
        gone.set()
        yield batches("b")

    def following() -> list[dict[str, Any]]:
        gone.wait()
        end = stream.latestOffset(begun, ReadAllAvailable())
        pieces = stream.partitions(begun, end)
        return [row for piece in pieces for row in reads.rows(stream.read(piece))]

    def listing() -> list[dict[str, Any]]:
        gone.wait()
        return reads.read(options | {"queue": "mail", "columns": "id"})

    with structlog.testing.capture_logs() as logs, ThreadPoolExecutor() as pool:
        calls: list[Callable[[], Any]] = [lambda: sink.write(writing()), following, listing]
        wrote, events, listed = [each.result() for each in [pool.submit(call) for call in calls]]
        stream.stop()
    assert wrote.summary.sent + wrote.summary.existing == 2 * ROWS
    assert len({row["id"] for row in events}) == len(events) > ROWS
    assert len(listed) > ROWS
    logged = [(line["what"], line["seconds"]) for line in logs if line["event"] == "redis unavailable, waiting"]
    assert 3 <= len(logged) <= 4
    assert all(what == "queue mail" and 50 < seconds <= 60 for what, seconds in logged)
    with Queue("mail", url=server.url) as queue:
        assert queue.stats().sent == 2 * ROWS + 1 == len(list(queue.events.range(count=10**5)))


def test_query_from_and_to_one_server_sends_each_row_once_through_kills_and_freezes(
    spark: SparkSession, server: RedisServer, tmp_path: Path
):
    with Topic("numbers", url=server.url) as topic:
        topic.publish_many([NewRecord(n) for n in range(ROWS)])
    rows = spark.readStream.format("delayq").options(url=server.url, topic="numbers", maxEntriesPerTrigger="300").load()
    writing = rows.selectExpr("payload", "0 AS delay").writeStream.format("delayq").trigger(availableNow=True)
    query = writing.options(url=server.url, queue="out", checkpointLocation=str(tmp_path)).start()
    seen: Counter[str] = Counter()

    def take() -> list[Message]:
        with Queue("out", url=server.url) as queue:
            messages = queue.receive(500, wait=1)
            seen.update(message.payload for message in messages)
            assert all(queue.ack(messages))  # a row that is sent again does not find its message
            return messages

    try:
        for outage in (killed, frozen, killed):
            while not take():
                assert query.isActive
            with outage(server):
                time.sleep(AWAY)
        query.awaitTermination()
    finally:
        query.stop()
    while take():
        pass
    assert seen == {str(n): 1 for n in range(ROWS)}
    with Queue("out", url=server.url) as queue:
        assert queue.stats().sent == ROWS


@contextmanager
def killed(server: RedisServer) -> Iterator[None]:
    server.kill()
    yield
    server.start()


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    os.kill(server.pid, signal.SIGSTOP)
    yield
    os.kill(server.pid, signal.SIGCONT)


def test_time_to_wait_is_the_callers(server: RedisServer):
    options = {"url": server.url, "waitFor": "0.2", "queue": "mail"}
    with Queue("mail", url=server.url) as queue:
        queue.send("x")
    server.kill()
    began = time.monotonic()
    with pytest.raises(ServerUnreachable):
        reads.read(options)
    assert time.monotonic() - began < 20
    for wrong in ("soon", "-1"):
        with pytest.raises(InvalidInput, match=f"\"waitFor\" is '{wrong}': give seconds, 0 or more"):
            RedisOptions.of({"waitFor": wrong})
    assert RedisOptions("redis://x", wait_for=5).options()["waitFor"] == "5"
