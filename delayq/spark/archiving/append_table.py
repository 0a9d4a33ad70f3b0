"""A table of Parquet files that grows by the batches of a stream, with each batch exactly once for any reader.

    PATH/TABLE/queue=…/date=…/*.parquet   the table, which never contains anything else
    PATH/_work/queue=…/checkpoint/        Spark's progress
    PATH/_work/queue=…/staging/           the files of the batch that is being written
    PATH/_work/queue=…/table              the name of the table that these belong to

Spark writes the files of a batch in `staging`. Only the driver moves them into the table, under names with the batch's
number. A killed batch is repeated, with the same number and the same rows: files that are already in the table stay,
and the rest is added. So no row is ever in the table twice, none disappears, and a task that outlives its driver
changes nothing.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple
from urllib.parse import quote, unquote

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from delayq.errors import InvalidInput, LakeMismatch
from delayq.lake import object_store
from delayq.lake.object_store import write_bytes
from delayq.lake.shown_path import shown
from delayq.spark.archiving import folders

WORK = "_work"
PARTITION = "queue="
LONGEST_NAME = 255
# In UTC, regardless of the session's time zone.
_DAY = "date_from_unix_date(cast(unix_micros({}) div 86400000000 as int))"
_FILE = re.compile(r"(?:batch|merged)-(\d{10})-[0-9a-f]+\.parquet", re.ASCII)


class StoredBatch(NamedTuple):
    """The rows and files that a batch added to a table."""

    queue: str
    number: int
    rows: int
    files: int


@dataclass(frozen=True)
class AppendTable:
    """The part of a table that belongs to a queue.

    Attributes:
        path: the folder that contains the table.
        table: its name there.
        queue: the queue.
        moment: the column with the rows' time, whose day in UTC is the partition `date`.
        schema: of the files: all columns except the queue and the date, which are in the folders' names.
        key: the columns that identify a row.
    """

    path: str
    table: str
    queue: str
    moment: str
    schema: pa.Schema
    key: Sequence[str]

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return f"{self.path}/{self.table}/{self.partition}"

    @property
    def work(self) -> str:
        """The folder of files that do not belong to the table."""
        return f"{self.path}/{WORK}/{self.partition}"

    @property
    def partition(self) -> str:
        """The folder of the queue in any table."""
        # In Hive's form, which also allows a queue named "..".
        name = f"{PARTITION}{quote(self.queue, safe='')}"
        if len(name) > LONGEST_NAME:
            raise InvalidInput(
                f"queue {self.queue!r} cannot be used as a folder name: with all but letters and digits escaped, it "
                f"has {len(name)} characters, and at most {LONGEST_NAME} are allowed"
            )
        return name

    @property
    def checkpoint(self) -> str:
        """The folder with Spark's progress."""
        return f"{self.work}/checkpoint"

    def check(self) -> None:
        """Check that the checkpoint exists and belongs to this table; otherwise all rows would be added again.

        Raises:
            LakeMismatch: the checkpoint is gone, or belongs to another table.
        """
        if folders.files(self.folder) and not object_store.exists(self.checkpoint):
            raise LakeMismatch(
                f"{shown(self.folder)} has files, but its {shown(self.checkpoint)} is gone: restore it, or begin in "
                "another folder"
            )
        noted = f"{self.work}/table"
        if not object_store.exists(noted):
            write_bytes(noted, self.table.encode())
        elif (other := object_store.read_bytes(noted).decode()) != self.table:
            raise LakeMismatch(
                f"{shown(self.path)} has the {other} of queue {self.queue}, and {shown(self.checkpoint)} belongs to "
                f"those: keep its {self.table} in another folder"
            )

    def of_batch(self, number: int) -> list[str]:
        """Return the files of the last batch.

        Raises:
            LakeMismatch: the table has later batches, so the checkpoint is an old copy.
        """
        numbers = {name: batch_of(name) for name in folders.files(self.folder)}
        last = max(numbers.values(), default=0)
        if last > number:
            raise LakeMismatch(
                f"{shown(self.folder)} has batches up to {last}, but {shown(self.checkpoint)} continues at {number}: "
                "it is an old copy; restore the latest one"
            )
        return [name for name, each in numbers.items() if each == number]

    def add(self, frame: DataFrame, number: int, again: bool = False) -> StoredBatch:
        """Add the rows of a batch.

        Args:
            again: whether it may have been tried before. Its rows in the table stay, as its source may be gone.
        """
        folders.remove_folder(f"{self.work}/staging")
        staging = f"{self.work}/staging/{uuid.uuid4().hex}"
        # Otherwise Spark writes times in its own format. The session is the query's, not the user's.
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows = frame.select(*self.schema.names, f.expr(_DAY.format(self.moment)).alias("date"))
        there = self.of_batch(number) if again else []
        if there:
            rows = self._without(rows, there)
        rows.write.partitionBy("date").option("compression", "zstd").parquet(folders.for_spark(staging))
        return self.take_in(staging, number, len(there))

    def _without(self, rows: DataFrame, files: Sequence[str]) -> DataFrame:
        """Leave out rows that are already in these files of the table."""
        paths = [folders.for_spark(f"{self.folder}/{name}") for name in files]
        known = rows.sparkSession.read.parquet(*paths).select(
            *(f.col(name).alias(f"known_{name}") for name in self.key)
        )
        same = (rows[name].eqNullSafe(known[f"known_{name}"]) for name in self.key)
        return rows.join(known, reduce(Column.__and__, same), "left_anti")

    def take_in(self, staging: str, number: int, there: int = 0) -> StoredBatch:
        """Move the files of a batch from staging into the table.

        Args:
            there: how many files of the batch are already in the table.
        """
        files = folders.files(staging)
        count = sum(folders.rows(f"{staging}/{name}") for name in files)
        for part, name in enumerate(files, there):
            folders.settle(f"{staging}/{name}")
            day = name.partition("/")[0]
            folders.move(f"{staging}/{name}", f"{self.folder}/{day}/batch-{number:010d}-{part:05d}.parquet")
        folders.remove_folder(f"{self.work}/staging")
        return StoredBatch(self.queue, number, count, len(files))


def queues_of(path: str) -> list[str]:
    """Return the queues that have a part of a table in a folder, sorted."""
    return [unquote(name.removeprefix(PARTITION)) for name in folders.names(f"{path}/{WORK}")]


def batch_of(name: str) -> int:
    """Return the number of a file's batch; of a merged file, the last one.

    Raises:
        LakeMismatch: the file does not belong in a table.
    """
    found = _FILE.fullmatch(name.rpartition("/")[2])
    if found is None:
        raise LakeMismatch(f"delayq did not write the file {name!r}: move it out of the table")
    return int(found[1])
