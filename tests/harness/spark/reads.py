"""Reads as in Spark but without Spark: one copy of a reader plans, another one reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from delayq.spark import reading
from delayq.spark.reading.schema import ARROW


def schema(options: Mapping[str, str]) -> StructType:
    """Return the columns that Spark sees."""
    pairs = [column.split(" ", 1) for column in reading.columns(options).split(", ")]
    return from_arrow_schema(pa.schema([(name.strip("`"), ARROW[ddl]) for name, ddl in pairs]))


def parts(options: Mapping[str, str]) -> tuple[DataSourceReader, list[InputPartition]]:
    """Return a reader, and the partitions of its tasks."""
    reader = reading.reader(options, schema(options))
    return copied(reader), list(reader.partitions())


def copied(value: Any) -> Any:
    """Return a value as it arrives on an executor."""
    return cloudpickle.loads(cloudpickle.dumps(value))  # type: ignore[no-untyped-call]  # it has no types


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return the rows, with maps as dicts."""
    found: list[dict[str, Any]] = []
    for batch in batches:
        found += batch.to_pylist(maps_as_pydicts="strict")
    return found


def by_task(options: Mapping[str, str]) -> list[list[dict[str, Any]]]:
    """Return the rows of each task."""
    reader, pieces = parts(options)
    return [rows(reader.read(copied(piece))) for piece in pieces]


def read(options: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return all rows."""
    return [row for task in by_task(options) for row in task]


def ids(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ids, sorted."""
    return sorted(row["id"] for row in rows)
