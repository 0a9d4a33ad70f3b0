"""The table of rows that could not be sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from delayq.lake.files import write_table

SCHEMA = pa.schema([("partition", pa.int32()), ("row", pa.int64()), ("id", pa.string()), ("reason", pa.string())])


class Reject(NamedTuple):
    """A row that cannot be sent: where it stood, its id if it had one, and why."""

    partition: int
    row: int
    id: str | None
    reason: str


def write_rejects(folder: str, name: str, rejects: Sequence[Reject]) -> None:
    """Write a task's rejects as one file of Parquet, in place of what an earlier try of the task has left."""
    columns = list(zip(*rejects, strict=True)) or [()] * len(SCHEMA)
    write_table(f"{folder}/{name}.parquet", pa.table([list(column) for column in columns], schema=SCHEMA))
