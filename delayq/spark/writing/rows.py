"""Rows of a table as messages."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from pyspark.sql import types as t

from delayq.errors import InvalidInput
from delayq.model.delivery import Outgoing
from delayq.model.envelope import CheckedJson
from delayq.spark.writing.cells import UTC_TIMES, Column, cells, documents

NESTED = (t.StructType, t.MapType, t.ArrayType, t.VariantType)
"""The types of a payload that becomes JSON."""

COLUMNS: dict[str, tuple[tuple[type[t.DataType], ...], str]] = {
    "payload": ((t.StringType, t.BinaryType, *NESTED), "a string, binary or a struct"),
    "due_at": ((t.TimestampType,), "a timestamp"),
    "delay": ((t.IntegralType, t.FractionalType), "a number of seconds"),
    "id": ((t.StringType,), "a string"),
    "headers": ((t.MapType,), "a map of strings"),
    "max_retries": ((t.IntegralType,), "a whole number"),
    "expires_at": ((t.TimestampType,), "a timestamp"),
    "timeout": ((t.IntegralType, t.FractionalType), "a number of seconds"),
}
"""The columns of a table of messages, with the types that each may have, and a description of these."""

TIMES = ("due_at", "expires_at")
_NUMBERS = ("delay", "max_retries", "timeout")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
FORMATS = ("text", "json")

_NO_KEYS = (*NESTED, t.BooleanType, t.NullType)


class TableRow(NamedTuple):
    """A row with its message, an `Outgoing`, or the reason why it cannot be one.

    Attributes:
        batch, position: its place.
        number: within its partition, from 0.
        id: as in the table, or None.
        expires_at: as in the table, or None; the message has it as a time from now.
    """

    batch: pa.RecordBatch
    position: int
    number: int
    id: str | None
    expires_at: dt.datetime | None
    message: Outgoing | InvalidInput


class Rows:
    """Reads a table of messages.

    Args:
        schema: of the table; the case of column names does not matter.
        payload_format: what a string in `payload` is: "text", or the text of a "json" document.

    Raises:
        InvalidInput: names the column that is missing, unknown or of another type.
    """

    def __init__(self, schema: t.StructType, payload_format: str = "text") -> None:
        if payload_format not in FORMATS:
            raise InvalidInput(f'the option "payloadFormat" is {payload_format!r}: give {" or ".join(FORMATS)}')
        own = t.StructType([t.StructField(field.name.lower(), field.dataType) for field in schema.fields])
        _check(own)
        self.schema = own
        self._kinds = {field.name: field.dataType for field in own.fields}
        self._documents = {"payload"} if isinstance(self._kinds["payload"], NESTED) else set()
        self._is_json = payload_format == "json" and isinstance(self._kinds["payload"], t.StringType)

    def read(self, batch: pa.RecordBatch, first: int, now: dt.datetime) -> Iterator[TableRow]:
        """Yield the rows of a batch.

        Args:
            first: the number of its first row.
            now: the server's time, from which `expires_at` counts.
        """
        names = [name.lower() for name in batch.schema.names]
        columns = [self._column(name, array) for name, array in zip(names, batch.columns, strict=True)]
        errors = {position: error for column in columns for position, error in column.errors.items()}
        for position, values in enumerate(zip(*(column.values for column in columns), strict=True)):
            row = dict(zip(names, values, strict=True))
            message: Outgoing | InvalidInput
            try:
                message = errors.get(position) or self._outgoing(row, now)
            except InvalidInput as error:
                message = error
            yield TableRow(batch, position, first + position, row.get("id"), row.get("expires_at"), message)

    def _column(self, name: str, array: pa.Array) -> Column:
        if name in _NUMBERS:  # not JSON; encoding the message refuses NaN
            return Column(array, pa.Array.to_pylist)
        read = documents if name in self._documents else cells
        return Column(
            array.cast(UTC_TIMES) if name in TIMES else array, partial(read, kind=self._kinds[name], name=name)
        )

    def _outgoing(self, row: Mapping[str, Any], now: dt.datetime) -> Outgoing:
        payload, due_at, delay = row["payload"], row.get("due_at"), row.get("delay")
        if payload is None:
            raise InvalidInput("payload is null")
        if due_at is None and delay is None:
            raise InvalidInput(f"{' and '.join(name for name in ('due_at', 'delay') if name in row)} is null")
        if due_at is not None and delay is not None:
            raise InvalidInput(f"due_at is {due_at} and delay is {delay}: one of them must be null")
        if due_at is not None and due_at < _EPOCH:
            raise InvalidInput(f"due_at is {due_at}, which is before 1970: give the time at which the message is due")
        expires_at, timeout = row.get("expires_at"), row.get("timeout")
        expires_in = None if expires_at is None else (expires_at - now).total_seconds()
        if expires_in is not None and expires_in <= (delay or 0):
            raise InvalidInput(f"expires_at is {expires_at}, which is before the message is due: give a later time")
        return Outgoing(
            _json(payload) if self._is_json else payload,
            at=due_at,
            delay=None if delay is None else float(delay),
            id=row.get("id"),
            headers=row.get("headers"),
            max_retries=row.get("max_retries"),
            expires_in=expires_in,
            timeout=None if timeout is None else float(timeout),
        )


def _check(schema: t.StructType) -> None:
    for field in schema.fields:
        if field.name not in COLUMNS:
            raise InvalidInput(
                f"unknown column {field.name!r}; expected one of {', '.join(COLUMNS)}. Drop it, or make it part of "
                f'the payload, as in struct("{field.name}", …).alias("payload")'
            )
        types, wanted = COLUMNS[field.name]
        if not isinstance(field.dataType, types):
            raise InvalidInput(f"column {field.name!r} is {field.dataType.simpleString()}: make it {wanted}")
        _check_within(field.dataType, field.name)
    names = set(schema.names)
    if len(names) < len(schema.names):
        raise InvalidInput(f"two of the columns {', '.join(schema.names)} differ only in case: drop one")
    if "payload" not in names:
        raise InvalidInput(f"there is no column payload among {', '.join(schema.names)}")
    if not names & {"due_at", "delay"}:
        raise InvalidInput(f"there is no column due_at or delay among {', '.join(schema.names)}: add one of them")


def _check_within(kind: t.DataType, path: str) -> None:
    """Refuse types with which no row could be sent."""
    if isinstance(kind, t.YearMonthIntervalType):
        raise InvalidInput(f"{path} is {kind.simpleString()}, which JSON cannot hold: cast it to a string")
    if isinstance(kind, t.StructType):
        if twice := [name for name, count in Counter(kind.names).items() if count > 1]:
            raise InvalidInput(f"{path} has more than one field {twice[0]!r}: rename them, or drop all but one")
        for field in kind.fields:
            _check_within(field.dataType, f"{path}.{field.name}")
    elif isinstance(kind, t.ArrayType):
        _check_within(kind.elementType, f"{path}[]")
    elif isinstance(kind, t.MapType):
        if isinstance(kind.keyType, _NO_KEYS):
            raise InvalidInput(
                f"{path} is a map whose keys are {kind.keyType.simpleString()}, but JSON keys are strings: convert "
                "them, for example with transform_keys"
            )
        _check_within(kind.keyType, f"the keys of {path}")
        _check_within(kind.valueType, f"{path}[]")


def _json(text: str) -> CheckedJson:
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        raise InvalidInput(f"payload is not JSON: {error}") from error
    return CheckedJson(text.encode())
