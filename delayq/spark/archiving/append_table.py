"""A table of Parquet files that grows by the batches of a stream, and holds each batch once for whoever reads it.

    PATH/TABLE/queue=…/date=…/*.parquet   the table: nothing else ever lies in it
    PATH/_work/queue=…/checkpoint/        how far Spark is
    PATH/_work/queue=…/staging/           the files of a batch that are being written
    PATH/_work/queue=…/table              which table both are of

Spark writes the files of a batch in `staging`, and the driver alone moves them into the table, under names that tell
the batch's number. What is killed on the way is done again, since Spark then gives the batch its number and its rows
again: what of it is in the table stays, and the rest is added. So a row is at no moment in the table twice, none that
was there goes, and a task that lives on while its driver is dead changes nothing.
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
from delayq.lake.object_store import write_bytes
from delayq.spark.archiving import folders

WORK = "_work"
PARTITION = "queue="
LONGEST_NAME = 255
# In UTC, whatever the zone of the session.
_DAY = "date_from_unix_date(cast(unix_micros({}) div 86400000000 as int))"
_FILE = re.compile(r"(?:batch|merged)-(\d{10})-[0-9a-f]+\.parquet", re.ASCII)


class StoredBatch(NamedTuple):
    """What a batch has added to a table."""

    queue: str
    number: int
    rows: int
    files: int


@dataclass(frozen=True)
class AppendTable:
    """The part of a table that belongs to a queue.

    Attributes:
        path: of the folder that the table is in.
        table: its name there.
        queue: whose part it is.
        moment: the column of the rows' time, whose day in UTC is the partition `date`.
        schema: of the files: all columns but the queue and the date, which the folders tell.
        key: the columns that tell a row from all others.
    """

    path: str
    table: str
    queue: str
    moment: str
    schema: pa.Schema
    key: Sequence[str]

    @property
    def folder(self) -> str:
        """Where its files are."""
        return f"{self.path}/{self.table}/{self.partition}"

    @property
    def work(self) -> str:
        """Where what is no part of the table is kept."""
        return f"{self.path}/{WORK}/{self.partition}"

    @property
    def partition(self) -> str:
        """The folder of the queue in any table."""
        # As Hive writes it; and thus a queue may be called "..", too.
        name = f"{PARTITION}{quote(self.queue, safe='')}"
        if len(name) > LONGEST_NAME:
            raise InvalidInput(
                f"queue {self.queue!r} cannot be the name of a folder: with all but letters and digits escaped it has "
                f"{len(name)} characters, and at most {LONGEST_NAME} are allowed"
            )
        return name

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps how far it is."""
        return f"{self.work}/checkpoint"

    def check(self) -> None:
        """Refuse a table whose checkpoint is gone: all that it holds would be added again; or is another table's.

        Raises:
            LakeMismatch: that is so.
        """
        if folders.files(self.folder) and not folders.exists(self.checkpoint):
            raise LakeMismatch(
                f"{self.folder} has files, and {self.checkpoint} is gone, which tells how far they go: restore it, or "
                "begin in another folder"
            )
        noted = f"{self.work}/table"
        if not folders.exists(noted):
            write_bytes(noted, self.table.encode())
        elif (other := folders.read(noted).decode()) != self.table:
            raise LakeMismatch(
                f"{self.path} has the {other} of queue {self.queue}, and {self.checkpoint} tells how far those go: "
                f"keep its {self.table} in another folder"
            )

    def of_batch(self, number: int) -> list[str]:
        """Return the files of a batch, which is the last one.

        Raises:
            LakeMismatch: the table has later batches: the checkpoint is an old copy.
        """
        numbers = {name: batch_of(name) for name in folders.files(self.folder)}
        last = max(numbers.values(), default=0)
        if last > number:
            raise LakeMismatch(
                f"{self.folder} has batches up to {last}, and {self.checkpoint} goes on at {number}: it is an old "
                "copy; bring back the one that was there last"
            )
        return [name for name, each in numbers.items() if each == number]

    def add(self, frame: DataFrame, number: int, again: bool = False) -> StoredBatch:
        """Add the rows of a batch.

        Args:
            again: it may have been tried before. What is there of it stays: it may no longer be there to be read.
        """
        folders.remove_folder(f"{self.work}/staging")
        staging = f"{self.work}/staging/{uuid.uuid4().hex}"
        # Else Spark writes times in a way of its own. The session is the query's, not the user's.
        frame.sparkSession.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        rows = frame.select(*self.schema.names, f.expr(_DAY.format(self.moment)).alias("date"))
        there = self.of_batch(number) if again else []
        if there:
            rows = self._without(rows, there)
        rows.write.partitionBy("date").option("compression", "zstd").parquet(folders.for_spark(staging))
        return self.take_in(staging, number, len(there))

    def _without(self, rows: DataFrame, files: Sequence[str]) -> DataFrame:
        """Leave out the rows that are in some files of the table."""
        paths = [folders.for_spark(f"{self.folder}/{name}") for name in files]
        known = rows.sparkSession.read.parquet(*paths).select(
            *(f.col(name).alias(f"known_{name}") for name in self.key)
        )
        same = (rows[name].eqNullSafe(known[f"known_{name}"]) for name in self.key)
        return rows.join(known, reduce(Column.__and__, same), "left_anti")

    def take_in(self, staging: str, number: int, there: int = 0) -> StoredBatch:
        """Move files of a batch from where they were written into the table.

        Args:
            there: files of the batch are in the table already.
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
    """Return the queues that have a part of a table in a folder, in order."""
    return [unquote(name.removeprefix(PARTITION)) for name in folders.names(f"{path}/{WORK}")]


def batch_of(name: str) -> int:
    """Return the number of the batch that a file is of; of merged ones, the last.

    Raises:
        LakeMismatch: no such file belongs in a table.
    """
    found = _FILE.fullmatch(name.rpartition("/")[2])
    if found is None:
        raise LakeMismatch(f"the file {name!r} is not one of delayq's: move it out of the table")
    return int(found[1])
