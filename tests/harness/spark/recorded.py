"""Events for the tests of the archive and the report: rows as in a ledger, and another reader of an archive."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession

from delayq.spark.jobs.archive import COLUMNS

LEDGER = COLUMNS.removesuffix(", date date")
NAMES = [column.split()[0] for column in LEDGER.split(", ")]
NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


def event(name: str, seconds: float = 0, message: str = "a", number: int = 0, **others: Any) -> dict[str, Any]:
    """Return an event some seconds after `NOON`; its entry id has that millisecond and a number."""
    at = NOON + dt.timedelta(seconds=seconds)
    fields = {"queue": "jobs", "shard": 0, "entry": f"{round(at.timestamp() * 1000)}-{number}", "id": message}
    return dict.fromkeys(NAMES) | fields | {"event": name, "at": at} | others


def frame(spark: SparkSession, events: Sequence[dict[str, Any]]) -> DataFrame:
    """Return events as Spark reads them from a ledger."""
    return spark.createDataFrame([tuple(each[name] for name in NAMES) for each in events], LEDGER)


def seen(path: Path, table: str = "events") -> list[dict[str, Any]]:
    """Return what a reader other than Spark finds in a table: each file in its folder, unchanged."""
    found = ds.dataset(str(path / table), format="parquet", partitioning="hive")
    rows: list[dict[str, Any]] = found.to_table().to_pylist()
    return rows


def named(shard: int, entry: str) -> str:
    """Return what identifies an entry, since each shard of a ledger numbers its own entries."""
    return f"{shard} {entry}"


def entries(path: Path) -> list[str]:
    """Return the entries that such a reader finds, in order, including duplicates."""
    return sorted(named(row["shard"], row["entry"]) for row in seen(path)) if (path / "events").exists() else []
