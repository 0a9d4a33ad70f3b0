"""Tables on Spark: how fast rows are sent, compared with plain Python and the same script, and read back."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.server import BenchServer
from delayq.model.delivery import Outgoing
from delayq.model.extras import install
from delayq.operations.encode import encode_all
from delayq.operations.send import send_new
from delayq.queue import Queue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESSES = 2
CHUNK_ROWS = 10_000  # as many as Spark passes at once
HOUR = 3600.0
DAY = 86_400.0

TITLES = {
    "plain": "written by plain Python, with the same script",
    "write": "written by Spark",
    "read_messages": "messages read by Spark",
    "read_events": "entries of a ledger read by Spark",
}
"""What is measured, in order."""

Say = Callable[[str], None]


def rates(server: BenchServer, size: int, rows: int, runs: int, say: Say) -> dict[str, Any]:
    """Return how many rows per second are written and read, and how many plain Python writes in as many processes.

    Raises:
        RuntimeError: Spark is not installed.
    """
    try:
        from delayq.spark import session  # noqa: PLC0415  # only this section needs it
        from delayq.spark.session import QUIET  # noqa: PLC0415
    except ImportError as error:
        raise RuntimeError(f"{error}: {install('spark')}") from error
    spark = session(f"local[{PROCESSES}]", QUIET | {"spark.default.parallelism": str(PROCESSES)}, "bench")
    try:
        _write(spark, server, size, rows // 10)  # the first run also starts the workers
        found: dict[str, list[float]] = {name: [] for name in TITLES}
        for run in range(runs):
            server.flush()
            found["plain"].append(_plain(server, size, rows))
            server.flush()
            found["write"].append(_write(spark, server, size, rows))
            found["read_messages"].append(_read(spark, server, rows, "queue"))
            server.flush()
            with Queue("bench", url=server.url) as queue:
                queue.configure(events=rows)
            _plain(server, size, rows)
            found["read_events"].append(_read(spark, server, rows, "events"))
            say(f"tables  run {run + 1}: { ({name: round(rates[-1]) for name, rates in found.items()}) }")
    finally:
        spark.stop()
    ratios = [write / plain for write, plain in zip(found["write"], found["plain"], strict=True)]
    return {
        "rows": rows,
        "per_second": {name: statistics.median(each) for name, each in found.items()},
        "write_of_plain": statistics.median(ratios),
    }


def _write(spark: SparkSession, server: BenchServer, size: int, rows: int) -> float:
    began = time.perf_counter()
    table = spark.range(0, rows, 1, PROCESSES).selectExpr(
        "concat('m', id) AS id", f"repeat('x', {size}) AS payload", f"{HOUR} + id % 1000 AS delay"
    )
    table.write.format("delayq").mode("append").options(url=server.url, queue="bench").save()
    return rows / (time.perf_counter() - began)


def _read(spark: SparkSession, server: BenchServer, rows: int, what: str) -> float:
    began = time.perf_counter()
    table = spark.read.format("delayq").options(**{"url": server.url, what: "bench", "partitions": str(PROCESSES)})
    count = table.load().count()
    if count != rows:
        raise RuntimeError(f"{rows} rows were written, {count} read")
    return rows / (time.perf_counter() - began)


def _plain(server: BenchServer, size: int, rows: int) -> float:
    """Send the same rows from processes without Spark, which are ready when the clock starts."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(PROCESSES + 1)
    share = rows // PROCESSES
    senders = [
        context.Process(target=_send, args=(server.url, size, number * share, share, ready))
        for number in range(PROCESSES)
    ]
    for sender in senders:
        sender.start()
    ready.wait(60)
    began = time.perf_counter()
    for sender in senders:
        sender.join()
    if any(sender.exitcode for sender in senders):
        raise RuntimeError("a plain sender has failed")
    return rows / (time.perf_counter() - began)


def _send(url: str, size: int, first: int, count: int, ready: Any) -> None:
    with Queue("bench", url=url) as queue:
        queue.stats()
        ready.wait(60)
        for start in range(first, first + count, CHUNK_ROWS):
            rows = range(start, min(start + CHUNK_ROWS, first + count))
            messages = [Outgoing("x" * size, delay=HOUR + n % 1000, id=f"m{n}", unique_for=DAY) for n in rows]
            queue.execute(send_new, encode_all(queue._context, messages))
