"""Reads as in Spark but without Spark: one copy of a reader plans, another one reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from delayq.spark import reading
from delayq.spark.reading.schema import ARROW


def schema(options: Mapping[str, str]) -> StructType:
    """Return the columns that Spark sees."""
    pairs = [column.split(" ", 1) for column in reading.columns(options).split(", ")]
    return from_arrow_schema(pa.schema([(name.strip("`"), ARROW[ddl]) for name, ddl in pairs]))


def parts(options: Mapping[str, str], *pushed: Filter) -> tuple[DataSourceReader, list[InputPartition]]:
    """Return a reader that applies these filters, and the partitions of its tasks."""
    options = {**options, "pushFilters": "true"} if pushed else options
    reader = reading.reader(options, schema(options))
    if pushed:
        assert list(reader.pushFilters(list(pushed))) == []
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


def by_task(options: Mapping[str, str], *pushed: Filter) -> list[list[dict[str, Any]]]:
    """Return the rows of each task."""
    reader, pieces = parts(options, *pushed)
    return [rows(reader.read(copied(piece))) for piece in pieces]


def read(options: Mapping[str, str], *pushed: Filter) -> list[dict[str, Any]]:
    """Return all rows that match these filters."""
    return [row for task in by_task(options, *pushed) for row in task]


def ids(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the ids, sorted."""
    return sorted(row["id"] for row in rows)
