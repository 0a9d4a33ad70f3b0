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
from delayq.spark.reading.batch_reader import MOST_PARTITIONS, EntriesReader
from delayq.spark.reading.messages import MessagesReader
from delayq.spark.reading.options import SourceOptions, check_known, chosen, one_of, switch, whole
from delayq.spark.reading.positions import EARLIEST, LATEST, positions
from delayq.spark.reading.schema import arrow_schema, ddl
from delayq.spark.reading.several import PATTERN, SeveralTables, several
from delayq.spark.reading.trigger_limits import TriggerLimits
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
_LIMITS = ("maxEntriesPerTrigger", "minEntriesPerTrigger", "maxTriggerDelay")
_STREAM = ("start", "partitions", *_LIMITS, "failOnDataLoss")

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
    make = partial(_reader, table, arrow_schema(table.columns, schema))
    names = several(options, _option(name))
    return make(options) if names is None else SeveralTables(names, options, make)


def _reader(table: SourceTable, schema: pa.Schema, options: SourceOptions) -> DataSourceReader:
    return table.reader(options, schema)


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
    check_known(options, (*_named(name), *_STREAM, *_ALL), f"a stream of {name}")
    # Spark 4.1 has no base for these.
    from delayq.spark.reading.several_streams import SeveralStreams  # noqa: PLC0415
    from delayq.spark.reading.streams import StreamReader  # noqa: PLC0415

    names, columns = several(options, name), arrow_schema(table.columns, schema)
    return StreamReader(options, columns) if names is None else SeveralStreams(names, options, columns)


def _check_batch(options: SourceOptions, name: str, table: SourceTable) -> None:
    read = () if name in STREAMS else ("read",)
    check_known(options, (*_named(_option(name)), *read, *table.options, *_ALL), f"a batch of {name}")


def _check_values(options: SourceOptions, name: str, table: SourceTable) -> None:
    names = several(options, _option(name))
    if name in STREAMS:
        known = (*_named(name), *dict.fromkeys((*_BATCH, *_STREAM)), *_ALL)
        check_known(options, known, f"a table or a stream of {name}")
        every = [options] if names is None else [names.of_one(options, name) for name in ("", *names.known(options))]
        for each in every:
            for bound, default in (("start", EARLIEST), ("end", LATEST)):
                positions(each, bound, default)
        TriggerLimits(options)
        whole(options, "partitions", MOST_PARTITIONS)
        switch(options, "failOnDataLoss", True)
    else:
        _check_batch(options, name, table)
    switch(options, "failOnMissing", False)
    RedisOptions.of(options)


def _option(name: str) -> str:
    """Return the option that names what a table reads."""
    return name if name in STREAMS else "queue"


def _named(option: str) -> tuple[str, str]:
    return option, f"{option}{PATTERN}"


def _table(options: SourceOptions) -> tuple[str, SourceTable]:
    given = [each for name in ("queue", *STREAMS) for each in _named(name) if each in options]
    if len(given) != 1:
        raise InvalidInput(
            f"the options name {' and '.join(given) or 'nothing'} to read: give one of "
            '.option("queue", …) or load(…), .option("events", …) and .option("topic", …)'
        )
    name = given[0].removesuffix(PATTERN)
    if name in STREAMS:
        return name, STREAMS[name]
    read = one_of(options, "read", list(QUEUE), "messages")
    return read, QUEUE[read]
