"""The table of rows that could not be sent."""

from __future__ import annotations

import re
from inspect import signature
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from delayq.lake.object_store import LEVEL, names, remove, write_bytes

_OWN = [
    pa.field("partition", pa.int32()),
    pa.field("row", pa.int64()),
    pa.field("id", pa.string()),
    pa.field("reason", pa.string()),
]

# Spark 4.3 must be told what older versions assume.
_ZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


class Rejects:
    """The rows of a task that cannot be sent, as they were in the table, with the reasons.

    They are kept in the compressed form of the file, as they may be all rows of the task.

    Args:
        folder: where the file goes.
        table: the columns of the rows.

    Attributes:
        count: how many there are.
    """

    def __init__(self, folder: str, table: StructType, partition: int) -> None:
        self.count = 0
        self._folder = folder
        self._partition = partition
        columns = to_arrow_schema(table, **_ZONE)
        self._schema = pa.schema([*_OWN, *(field for field in columns if field.name != "id")])
        self._file = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd", compression_level=LEVEL)
        self._batch: pa.RecordBatch | None = None
        self._rows: list[tuple[int, int, str]] = []

    def add(self, batch: pa.RecordBatch, position: int, number: int, reason: str) -> None:
        """Add the row at a position of a batch; `number` is its number in the partition."""
        if batch is not self._batch:
            self._keep()
            self._batch = batch
        self.count += 1
        self._rows.append((position, number, reason))

    def write(self, run: str, even_none: bool = True) -> None:
        """Write one Parquet file, replacing that of an earlier try of the task.

        Args:
            even_none: whether to write it even without rows, so that the table can be read. A stream would leave an
                empty file for each task of each batch.
        """
        path = f"{self._folder}/{run}-{self._partition}.parquet"
        self._keep()
        self._writer.close()
        if self.count or even_none:
            write_bytes(path, self._file.getvalue())
        else:
            remove(path)

    def _keep(self) -> None:
        if self._batch is None:
            return
        positions, numbers, reasons = map(list, zip(*self._rows, strict=True))
        count = len(positions)
        found = self._batch.take(pa.array(positions))
        columns = {"id": pa.nulls(count)} | dict(zip(map(str.lower, found.schema.names), found.columns, strict=True))
        columns |= {"partition": pa.array([self._partition] * count), "row": pa.array(numbers)}
        columns |= {"reason": pa.array(reasons)}
        self._writer.write_table(
            pa.table([columns[name] for name in self._schema.names], self._schema.names).cast(self._schema)
        )
        self._batch, self._rows = None, []


def forget_rejects(folder: str, run: str, tasks: int) -> None:
    """Remove files of tasks that an earlier try of a job had and this one does not.

    Args:
        tasks: how many tasks it has now.
    """
    own = re.compile(rf"{re.escape(run)}-(\d+)\.parquet", re.ASCII)
    for name in names(folder):
        match = own.fullmatch(name)
        if match is not None and int(match[1]) >= tasks:
            remove(f"{folder}/{name}")
