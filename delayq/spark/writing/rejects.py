"""The table of rows that could not be sent."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from delayq.lake.object_store import names, remove, write_table

SCHEMA = pa.schema([("partition", pa.int32()), ("row", pa.int64()), ("id", pa.string()), ("reason", pa.string())])


class RejectedRow(NamedTuple):
    """A row that cannot be sent: where it stood, its id if it had one, and why."""

    partition: int
    row: int
    id: str | None
    reason: str


def write_rejects(
    folder: str, run: str, partition: int, rejects: Sequence[RejectedRow], even_none: bool = True
) -> None:
    """Write a task's rejects as one file of Parquet, in place of what an earlier try of the task has left.

    Args:
        even_none: write a file when there are none, too, so that the table can be read. A stream would leave one for
            each task of each batch.
    """
    path = f"{folder}/{run}-{partition}.parquet"
    if rejects or even_none:
        columns = list(zip(*rejects, strict=True)) or [()] * len(SCHEMA)
        write_table(path, pa.table([list(column) for column in columns], schema=SCHEMA))
    else:
        remove(path)


def forget_rejects(folder: str, run: str, tasks: int) -> None:
    """Remove what an earlier try of a job has left of tasks that it no longer has.

    Args:
        tasks: as many has it now.
    """
    own = re.compile(rf"{re.escape(run)}-(\d+)\.parquet", re.ASCII)
    for name in names(folder):
        match = own.fullmatch(name)
        if match is not None and int(match[1]) >= tasks:
            remove(f"{folder}/{name}")
