"""What the data source reads: which of its readers the options mean, and which columns it has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from delayq.errors import InvalidInput
from delayq.spark.reading import ledger_rows, pages, records, single_partition
from delayq.spark.reading.batch_reader import EntriesReader
from delayq.spark.reading.messages import messages_reader
from delayq.spark.reading.options import SourceOptions, check_known, chosen
from delayq.spark.reading.schema import arrow_schema, ddl

Options: TypeAlias = Mapping[str, str]
"""As Spark hands them over; to a reader, as `SourceOptions`."""


class SourceTable(NamedTuple):
    """Something that can be read.

    Attributes:
        columns: their names and types.
        reader: of what is there now.
        options: that it has beside those which all have.
    """

    columns: dict[str, str]
    reader: Callable[[Options, pa.Schema], DataSourceReader]
    options: tuple[str, ...] = ()


_ALL = ("url", "prefix", "columns", "failOnMissing")
_SCORED = ("after", "before", "partitions", "pushFilters")
_BATCH = ("start", "end", "partitions")
_STREAM = ("start", "partitions", "maxEntriesPerTrigger", "failOnDataLoss")

QUEUE = {
    "messages": SourceTable(pages.COLUMNS, messages_reader, ("states", *_SCORED)),
    "dead": SourceTable(pages.COLUMNS, partial(messages_reader, states=["dead"]), _SCORED),
    "stats": SourceTable(single_partition.STATS, single_partition.StatsReader),
    "schedules": SourceTable(single_partition.SCHEDULES, single_partition.SchedulesReader),
}
"""What can be read of a queue: the values of the option `read`."""

STREAMS = {
    "events": SourceTable(ledger_rows.COLUMNS, EntriesReader, _BATCH),
    "topic": SourceTable(records.COLUMNS, EntriesReader, _BATCH),
}
"""What can be read as it grows: options that name it."""


def columns(options: Options) -> str:
    """Return the columns of what the options mean, as DDL; the option `columns` chooses some of them."""
    options = SourceOptions(options)
    _, table = _table(options)
    return ddl(table.columns, chosen(options, "columns", table.columns, table.columns))


def reader(options: Options, schema: StructType) -> DataSourceReader:
    """Return what reads all that is there now.

    Raises:
        InvalidInput: naming the option, its value, and what it may be.
    """
    options = SourceOptions(options)
    name, table = _table(options)
    named = (name,) if name in STREAMS else ("queue", "read")
    check_known(options, (*named, *table.options, *_ALL), f"a batch of {name}")
    return table.reader(options, arrow_schema(table.columns, schema))


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """Return what reads a ledger or a topic as it grows.

    Raises:
        InvalidInput: as `reader`; or the options mean something that does not grow.
    """
    options = SourceOptions(options)
    name, table = _table(options)
    if name not in STREAMS:
        raise InvalidInput(
            f"{name} of a queue cannot be streamed: they change, and do not grow; stream its ledger with "
            f'.option("events", {options["queue"]!r}), or read them with spark.read'
        )
    check_known(options, (name, *_STREAM, *_ALL), f"a stream of {name}")
    from delayq.spark.reading.streams import StreamReader  # noqa: PLC0415  # Spark 4.1 has no base for it

    return StreamReader(options, arrow_schema(table.columns, schema))


def _table(options: SourceOptions) -> tuple[str, SourceTable]:
    given = [name for name in ("queue", *STREAMS) if name in options]
    if len(given) != 1:
        raise InvalidInput(
            f"the options name {' and '.join(given) or 'nothing'} to read: give one of "
            '.option("queue", …) or load(…), .option("events", …) and .option("topic", …)'
        )
    (name,) = given
    if name in STREAMS:
        return name, STREAMS[name]
    read = options.get("read", "messages")
    if read not in QUEUE:
        raise InvalidInput(f'the option "read" is {read!r}: give one of {", ".join(QUEUE)}')
    return read, QUEUE[read]
