"""The data source "delayq"; its options say what it reads and writes."""

from __future__ import annotations

from collections.abc import Mapping

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from delayq.errors import InvalidInput
from delayq.spark import reading
from delayq.spark.writing.sink import Sink

STREAMS_SINCE = (4, 2)
"""The first Spark in which Python streams can limit a batch and end with what is available now."""

_TABLE = (
    "CREATE TABLE … USING delayq makes no table that can be used, because Spark does not pass on its options when it "
    "is read or written: use CREATE TEMPORARY VIEW … USING delayq OPTIONS (…), or a DataFrame"
)


class DelayqSource(DataSource):
    """The format "delayq" of a DataFrame's `read`, `readStream`, `write` and `writeStream`.

    ``docs/spark.md`` describes its options and columns.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "delayq"

    def schema(self) -> str:
        """Return the columns for the options.

        Raises:
            InvalidInput: an option is wrong, or Spark is making a table of its catalog.
        """
        if "provider" in self.options:  # the properties of a table, with which Spark asks for its columns only now
            raise InvalidInput(f"{_TABLE}{_recorded(self.options)}")
        return reading.columns(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of everything that is there now."""
        _check_is_no_table(self.options)
        return reading.reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return a reader of the ledger or a topic as it grows."""
        _check_streams()
        return reading.stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that sends each row as a message."""
        _check_is_no_table(self.options)
        _refuse_to_overwrite(overwrite)
        return Sink(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return a writer that sends each row of a stream as a message."""
        _refuse_to_overwrite(overwrite)
        _check_streams()
        from delayq.spark.writing.stream_sink import StreamSink  # noqa: PLC0415  # Spark 4.0 has no base for it

        return StreamSink(self.options, schema)


def _check_streams() -> None:
    version = pyspark.__version__
    if tuple(map(int, version.split(".")[:2])) < STREAMS_SINCE:
        raise InvalidInput(
            f"streams need Spark {'.'.join(map(str, STREAMS_SINCE))} or newer, but this is Spark {version}, with which "
            "delayq only reads and writes tables"
        )


def _check_is_no_table(options: Mapping[str, str]) -> None:
    """Refuse a table that was made with columns, as Spark asks for nothing before it reads or writes that."""
    if not options:
        raise InvalidInput(f"no options are given. {_TABLE}")


def _recorded(options: Mapping[str, str]) -> str:
    if "url" not in options:
        return ""
    return (
        ". Spark shows the url of this statement in its web interface and its event log: if it has a password, change "
        'that, and give the option "urlFrom" instead'
    )


def _refuse_to_overwrite(overwrite: bool) -> None:
    if overwrite:
        raise InvalidInput('a queue cannot be overwritten: use mode("append"), after a purge if you want it empty')
