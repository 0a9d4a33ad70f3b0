"""Reading with the data source: the reader for the options, and its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from delayq.errors import InvalidInput
from delayq.spark.reading import ledger_rows, pages, records, single_partition
from delayq.spark.reading.batch_reader import (
    EARLIEST,
    LATEST,
    MOST_ENTRIES,
    MOST_PARTITIONS,
    EntriesReader,
    position,
)
from delayq.spark.reading.messages import MessagesReader
from delayq.spark.reading.options import SourceOptions, check_known, chosen, one_of, switch, whole
from delayq.spark.reading.schema import arrow_schema, ddl
from delayq.spark.redis_options import RedisOptions

Options: TypeAlias = Mapping[str, str]
"""Options as Spark passes them; readers get them as `SourceOptions`."""


class SourceTable(NamedTuple):
    """A kind of table that can be read.

    Attributes:
        columns: their names and types.
        reader: reads what is there now.
        options: its own options, besides the common ones.
    """

    columns: dict[str, str]
    reader: Callable[[Options, pa.Schema], DataSourceReader]
    options: tuple[str, ...] = ()


_ALL = ("url", "urlFrom", "prefix", "waitFor", "columns", "failOnMissing")
_SCORED = ("after", "before", "ids", "partitions")
_BATCH = ("start", "end", "partitions")
_STREAM = ("start", "partitions", "maxEntriesPerTrigger", "failOnDataLoss")

QUEUE = {
    "messages": SourceTable(pages.COLUMNS, MessagesReader, ("states", *_SCORED)),
    "dead": SourceTable(pages.COLUMNS, partial(MessagesReader, states=["dead"]), _SCORED),
    "stats": SourceTable(single_partition.STATS, single_partition.StatsReader),
    "schedules": SourceTable(single_partition.SCHEDULES, single_partition.SchedulesReader),
}
"""The tables of a queue: the values of the option `read`."""

STREAMS = {
    "events": SourceTable(ledger_rows.COLUMNS, EntriesReader, _BATCH),
    "topic": SourceTable(records.COLUMNS, EntriesReader, _BATCH),
}
"""The options that name a stream."""


def columns(options: Options) -> str:
    """Return the columns for the options, as DDL; the option `columns` selects some of them.

    Spark asks for them when a query is made, but for the reader of a stream only when the query starts.

    Raises:
        InvalidInput: as for `reader` and `stream_reader`, as far as an option is wrong for both.
    """
    options = SourceOptions(options)
    name, table = _table(options)
    _check_values(options, name, table)
    return ddl(table.columns, chosen(options, "columns", table.columns, table.columns))


def reader(options: Options, schema: StructType) -> DataSourceReader:
    """Return a reader of everything that is there now.

    Raises:
        InvalidInput: names the option, its value, and the allowed values.
    """
    options = SourceOptions(options)
    name, table = _table(options)
    _check_batch(options, name, table)
    return table.reader(options, arrow_schema(table.columns, schema))


def stream_reader(options: Options, schema: StructType) -> DataSourceStreamReader:
    """Return a reader of a ledger or a topic as it grows.

    Raises:
        InvalidInput: as for `reader`; or the options name something that cannot be streamed.
    """
    options = SourceOptions(options)
    name, table = _table(options)
    if name not in STREAMS:
        raise InvalidInput(
            f"{name} of a queue cannot be streamed: stream its ledger with "
            f'.option("events", {options["queue"]!r}), or read them with spark.read'
        )
    check_known(options, (name, *_STREAM, *_ALL), f"a stream of {name}")
    from delayq.spark.reading.streams import StreamReader  # noqa: PLC0415  # Spark 4.1 has no base for it

    return StreamReader(options, arrow_schema(table.columns, schema))


def _check_batch(options: SourceOptions, name: str, table: SourceTable) -> None:
    named = (name,) if name in STREAMS else ("queue", "read")
    check_known(options, (*named, *table.options, *_ALL), f"a batch of {name}")


def _check_values(options: SourceOptions, name: str, table: SourceTable) -> None:
    if name in STREAMS:
        check_known(options, (name, *dict.fromkeys((*_BATCH, *_STREAM)), *_ALL), f"a table or a stream of {name}")
        for bound, default in (("start", EARLIEST), ("end", LATEST)):
            position(options, bound, default)
        whole(options, "maxEntriesPerTrigger", MOST_ENTRIES)
        whole(options, "partitions", MOST_PARTITIONS)
        switch(options, "failOnDataLoss", True)
    else:
        _check_batch(options, name, table)
    switch(options, "failOnMissing", False)
    RedisOptions.of(options)


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
    read = one_of(options, "read", list(QUEUE), "messages")
    return read, QUEUE[read]
