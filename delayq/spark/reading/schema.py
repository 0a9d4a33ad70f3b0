"""The columns that can be read, in Spark's DDL and in Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
from pyspark.sql.types import StructType

from delayq.errors import InvalidInput
from delayq.model.units import MAX_TIME_MS

TIMESTAMP = pa.timestamp("us", "UTC")
HEADERS = pa.map_(pa.string(), pa.string())
RUNS = "map<string,struct<acked:bigint,failed:bigint,dead:bigint>>"
ARROW: dict[str, pa.DataType] = {
    "string": pa.string(),
    "timestamp": TIMESTAMP,
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "map<string,string>": HEADERS,
    "map<bigint,bigint>": pa.map_(pa.int64(), pa.int64()),
    RUNS: pa.map_(pa.string(), pa.struct(dict.fromkeys(("acked", "failed", "dead"), pa.int64()))),
}
"""The types of columns, by their names in DDL."""

BATCH_ROWS = 8192
BATCH_BYTES = 16 * 1024 * 1024


def ddl(columns: Mapping[str, str], names: Iterable[str]) -> str:
    """Return the columns with these names as DDL."""
    return ", ".join(f"`{name}` {columns[name]}" for name in names)


def arrow_schema(columns: Mapping[str, str], schema: StructType) -> pa.Schema:
    """Return the schema that Spark expects, for Arrow: it may have fewer columns, in another order or case.

    Raises:
        InvalidInput: a column does not exist, or has another type.
    """
    for field in schema.fields:
        wanted = columns.get(field.name.lower())
        if wanted is None:
            raise InvalidInput(f"unknown column {field.name!r}; expected one of {', '.join(columns)}")
        if field.dataType.simpleString() != wanted:
            raise InvalidInput(f"column {field.name!r} is {wanted}, not {field.dataType.simpleString()}")
    return pa.schema([pa.field(each.name, ARROW[columns[each.name.lower()]], each.nullable) for each in schema.fields])


def column_names(schema: pa.Schema) -> list[str]:
    """Return the original names of a schema's columns."""
    return [name.lower() for name in schema.names]


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in larger batches, as each batch costs Spark as much as some hundred rows."""
    kept: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        kept.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield _one(kept)
            kept, rows, size = [], 0, 0
    if kept:
        yield _one(kept)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def micros(ms: float) -> int:
    """Return milliseconds since 1970 as a cell of a timestamp; values out of range become the nearest end."""
    return int(ms) * 1000 if 0 <= ms <= MAX_TIME_MS else 0 if ms < 0 else MAX_TIME_MS * 1000


def int32(value: int | None) -> int | None:
    """Return a number as a cell of an int; null if another program stored one that is too large."""
    return value if value is not None and -(2**31) <= value < 2**31 else None
