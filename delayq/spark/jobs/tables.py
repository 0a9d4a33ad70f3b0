"""Tables to make messages from: their places, and the mapping of their columns."""

from __future__ import annotations

from collections.abc import Mapping
from glob import glob
from pathlib import Path, PurePath

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # Spark's usual name
from pyspark.sql import types as t

from delayq.errors import InvalidInput
from delayq.lake.shown_path import shown
from delayq.spark.archiving import folders
from delayq.spark.errors import checked
from delayq.spark.writing.rows import COLUMNS, Rows

FORMATS = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".orc": "orc"}
"""Formats by the end of a file's name; a further ``.gz`` or similar is ignored."""

TABLE = "table"
"""The format of a table that the session knows by name."""

_DEFAULTS = {"csv": {"header": "true"}}
_PACKED = {".gz", ".bz2", ".zst", ".snappy", ".lz4"}
_TIMES = ("due_at", "expires_at")


def read_table(
    spark: SparkSession, place: str, table_format: str | None = None, options: Mapping[str, str] | None = None
) -> DataFrame:
    """Return a table.

    Args:
        place: a file, a folder, a pattern of these, or the name of a table. If it is not on this machine, it is
            searched in Spark's default file system.
        table_format: parquet, csv, json (one document a line), another format that Spark reads, or "table"; None to
            use the file's name.
        options: of the format, such as ``{"sep": ";"}``. The first line of CSV contains the column names, unless
            `header` is "false".

    Raises:
        InvalidInput: the format is unknown, or there is no such table.
    """
    chosen = table_format or _format_of(place)
    with checked("the table", shown(place), "Give an existing path or name, and its format"):
        reader = spark.read.options(**_DEFAULTS.get(chosen.lower(), {})).options(**dict(options or {}))
        return reader.table(place) if chosen == TABLE else reader.format(chosen).load(_path(place))


def _path(place: str) -> str:
    """Return the path of a table for Spark; if it is not on this machine, it may be in Spark's default file system."""
    is_known = "://" in place or Path(place).exists() or bool(glob(place))  # noqa: PTH207  # of any folder
    return folders.for_spark(place) if is_known else place


def _format_of(place: str) -> str:
    path = PurePath(place)
    if path.suffix.lower() in _PACKED:
        path = path.with_suffix("")
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise InvalidInput(
            f"the format of table {shown(place)!r} is not clear from its name: give parquet, csv, json, or "
            f'"{TABLE}" for a table that Spark knows by name'
        )
    return found


def read_messages(
    spark: SparkSession,
    table: DataFrame | str,
    columns: Mapping[str, str] | None = None,
    delay: float | None = None,
    table_format: str | None = None,
    options: Mapping[str, str] | None = None,
    payload_format: str = "text",
) -> DataFrame:
    """Return a table of messages, and report errors in its columns here rather than in a task.

    Args:
        table: a DataFrame, or its place, with `table_format` and `options` as in `read_table`.
        columns, delay: as in `as_messages`.
        payload_format: what a string payload is: "text", or the text of a "json" document.

    Raises:
        InvalidInput: says what is wrong with the table or an argument.
    """
    found = read_table(spark, table, table_format, options) if isinstance(table, str) else table
    messages = as_messages(found, columns, delay)
    Rows(messages.schema, payload_format)
    return messages


def as_messages(table: DataFrame, columns: Mapping[str, str] | None = None, delay: float | None = None) -> DataFrame:
    """Return a table with only the columns of messages, whose names are in lower case.

    Args:
        columns: expressions of Spark SQL by the names of a message's columns; if empty, the table's own columns with
            these names.
        delay: seconds, for every row.

    Raises:
        InvalidInput: a column that messages do not have, an expression that Spark does not understand, a time without
            a time zone.
    """
    chosen = {name.lower(): expression for name, expression in (columns or {}).items()}
    for name, expression in chosen.items():
        _check_expression(table, name, expression)
    found = table.select([F.expr(each).alias(name) for name, each in chosen.items()]) if chosen else table
    found = found.toDF(*map(str.lower, found.columns))
    if delay is not None:
        if twice := {"due_at", "delay"} & set(found.columns):
            raise InvalidInput(f"the delay {delay:g} and a column {twice.pop()} were given: give one of them")
        found = found.withColumn("delay", F.lit(float(delay)))
    for field in found.schema.fields:
        if field.name in _TIMES:
            _check_time(field, chosen or {each.lower(): each for each in table.columns})
    return found


def _check_expression(table: DataFrame, name: str, expression: str) -> None:
    if name not in COLUMNS:
        raise InvalidInput(f"a message has no column {name!r}: map one of {', '.join(COLUMNS)}")
    with checked(f"the expression for {name}", expression, f"The table has {', '.join(table.columns) or 'no columns'}"):
        table.select(F.expr(expression).alias(name))


def _check_time(field: t.StructField, columns: Mapping[str, str]) -> None:
    """Refuse times that would be read in a time zone that was not given."""
    name, kind = field.name, field.dataType
    found = columns[name]
    if isinstance(kind, t.TimestampNTZType | t.DateType):
        hour = "09:00:00 " if isinstance(kind, t.DateType) else ""
        wrong = f"{kind.simpleString()}, which has no time zone: give one"
        remedies = [f"to_timestamp(concat({found}, ' {hour}Europe/Berlin'))"]
    elif isinstance(kind, t.StringType):
        wrong, remedies = "a string: make it a timestamp", [f"to_timestamp({found})"]
    elif isinstance(kind, t.NumericType):
        wrong = f"{kind.simpleString()}: make it a timestamp"
        remedies = [f"timestamp_seconds({found})", f"timestamp_millis({found})"]
    else:
        return
    others = "".join(f', {each}="{sql}"' for each, sql in columns.items() if each != name)
    examples = " or ".join(f'"{each}"' for each in remedies)
    raise InvalidInput(f"column {name!r} is {wrong}, as in {name}={examples}{others}")
