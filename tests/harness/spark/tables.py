"""Tables of messages, and what was sent."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from delayq import Queue

DUE = dt.datetime(2030, 1, 2, 9, 0, 0, 250_000, dt.UTC)


def table(spark: SparkSession, rows: Sequence[tuple[Any, ...]], columns: str, partitions: int = 2) -> DataFrame:
    """A table of these rows, in this many partitions."""
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, partitions), columns)


def write(table: DataFrame, url: str, queue: str = "jobs", **options: str) -> None:
    """Send a table."""
    table.write.format("delayq").mode("append").options(url=url, queue=queue, **options).save()


def written(table: DataFrame, url: str, folder: Path, **options: str) -> Mapping[str, Any]:
    """Send a table; return the summary."""
    summary = folder / "summary.json"
    write(table, url, summary=str(summary), **options)
    document: Mapping[str, Any] = json.loads(summary.read_text())
    return document


def payloads(queue: Queue) -> list[Any]:
    """The waiting messages, by due time."""
    return [info.payload for info in queue.peek("pending", limit=100_000)]
