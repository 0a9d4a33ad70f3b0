"""Cells of a table as Python values, converted a column at a time: pyarrow itself takes ten times as long."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from functools import cache
from itertools import islice, pairwise
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as t

from delayq.errors import InvalidInput
from delayq.model.envelope import CheckedJson

UTC_TIMES = pa.timestamp("us", "UTC")

_SLICE_ROWS = 1000  # the objects of a slice's payloads are freed before the next ones are made
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_NAIVE_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001  # of times without a zone
_YEAR_SECONDS = 31_556_952
_USUAL = range(30 * _YEAR_SECONDS, 230 * _YEAR_SECONDS)  # 2000 to 2199
_encode_lines = msgspec.json.Encoder().encode_lines

_Reader: TypeAlias = Callable[[pa.Array, Any, str], list[Any]]


class Column:
    """The cells of a column of a batch.

    Args:
        read: returns the values of a column or of a part of one, or raises InvalidInput.

    Attributes:
        values: in the order of the rows; None for a null, and for a value that cannot be read.
        errors: for values that cannot be read, by their positions.
    """

    def __init__(self, array: pa.Array, read: Callable[[pa.Array], list[Any]]) -> None:
        self.values: list[Any] = []
        self.errors: dict[int, InvalidInput] = {}
        for start in range(0, len(array), _SLICE_ROWS):
            part = array.slice(start, _SLICE_ROWS)
            try:
                self.values += read(part)
            except InvalidInput:
                self._read_each(part, start, read)

    def _read_each(self, part: pa.Array, start: int, read: Callable[[pa.Array], list[Any]]) -> None:
        for position in range(len(part)):
            try:
                self.values += read(part.slice(position, 1))
            except InvalidInput as error:
                self.values.append(None)
                self.errors[start + position] = error


def documents(array: pa.Array, kind: t.DataType, name: str) -> list[CheckedJson | None]:
    """Return the values of a column as JSON, byte for byte what `encode_envelope` makes from the result of `cells`.

    Raises:
        InvalidInput: as for `cells`.
    """
    lines = _encode_lines(cells(array, kind, name)).split(b"\n")
    return _with_nulls(array, list(map(CheckedJson, lines[:-1])))


def cells(array: pa.Array, kind: t.DataType, name: str) -> list[Any]:
    """Return the values of a column: a struct as an object that msgspec encodes as JSON, a variant as its JSON.

    Args:
        name: of the column, or the path of a nested value.

    Raises:
        InvalidInput: a value cannot be represented in Python or in JSON, or a map has two equal keys.
    """
    read = next((read for type_, read in _READERS if isinstance(kind, type_)), _plain)
    return read(array, kind, name)


def _plain(array: pa.Array, _kind: t.DataType, name: str) -> list[Any]:
    try:
        return array.to_pylist()  # type: ignore[no-any-return]
    except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as error:
        raise InvalidInput(f"{name} has a value that Python cannot represent: {error}") from error


def _floats(array: pa.Array, _kind: t.DataType, name: str) -> list[Any]:
    values: list[Any] = array.to_pylist()
    for value in values:
        if value is not None and not math.isfinite(value):
            raise InvalidInput(f"{name} is {value}, which JSON cannot hold: send null or a string")
    return values


def _structs(array: pa.StructArray, kind: t.StructType, name: str) -> list[Any]:
    parts = [
        cells(part, field.dataType, f"{name}.{field.name}")
        for part, field in zip(array.flatten(), kind.fields, strict=True)
    ]
    return _with_nulls(array, list(map(_object(tuple(kind.names)), *parts)) if parts else [{}] * len(array))


@cache
def _object(names: tuple[str, ...]) -> Callable[..., object]:
    """Return a function that makes JSON objects with these names; a Struct takes a fifth of a dict's time."""
    fields = [f"_{number}" for number in range(len(names))]
    try:
        return msgspec.defstruct("Row", fields, rename=dict(zip(fields, names, strict=True)), gc=False)
    except ValueError:  # a name that JSON escapes
        return lambda *values: dict(zip(names, values, strict=True))


def _lists(array: pa.ListArray, kind: t.ArrayType, name: str) -> list[Any]:
    values = iter(cells(array.flatten(), kind.elementType, f"{name}[]"))
    return [None if length is None else list(islice(values, length)) for length in array.value_lengths().to_pylist()]


def _maps(array: pa.MapArray, kind: t.MapType, name: str) -> list[Any]:
    ends = array.offsets.to_pylist()
    within = slice(ends[0], ends[-1])
    keys = iter(cells(array.keys[within], kind.keyType, f"the keys of {name}"))
    values = iter(cells(array.items[within], kind.valueType, f"{name}[]"))
    rows = []
    for start, end in pairwise(ends):
        row = dict(zip(islice(keys, end - start), islice(values, end - start), strict=True))
        if len(row) != end - start:
            raise InvalidInput(f"{name} has the same key more than once: {', '.join(map(repr, row))}")
        rows.append(row)
    return _with_nulls(array, rows)


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if is_there else None for value, is_there in zip(values, array.is_valid().to_pylist(), strict=True)]


def _times(array: pa.TimestampArray, _kind: t.DataType, name: str) -> list[Any]:
    """Return times in the column's time zone, or naive ones if it has none."""
    zone = pa.scalar(0, array.type).as_py().tzinfo
    epoch = _NAIVE_EPOCH if zone is None else _EPOCH
    values: list[Any] = []
    for micros in array.cast(pa.int64()).to_pylist():
        try:
            values.append(None if micros is None else epoch + dt.timedelta(microseconds=micros))
        except OverflowError as error:
            raise InvalidInput(_out_of_range(name, micros)) from error
    if array.type.tz in (None, "UTC"):
        return values
    try:
        return [None if value is None else value.astimezone(zone) for value in values]
    except OverflowError as error:
        raise InvalidInput(f"{name} is not between the years 1 and 9999 in the zone {zone}") from error


def _out_of_range(name: str, micros: int) -> str:
    seconds = micros // 1_000_000
    text = f"{name} is {seconds} seconds after 1970, which is not between the years 1 and 9999"
    if seconds // 1000 not in _USUAL:
        return text
    meant = dt.datetime.fromtimestamp(seconds // 1000, dt.UTC)
    return (
        f"{text}: it looks like milliseconds read as seconds, for {meant:%Y-%m-%dT%H:%M:%SZ}; divide by 1000, or use "
        "timestamp_millis"
    )


def _variants(array: pa.StructArray, _kind: t.DataType, name: str) -> list[Any]:
    pairs = zip(*(part.to_pylist() for part in array.flatten()), strict=True)
    return [None if value is None else _variant(value, metadata, name) for value, metadata in pairs]


def _variant(value: bytes, metadata: bytes, name: str) -> msgspec.Raw:
    try:
        text = t.VariantVal(value, metadata).toJson().encode()
        msgspec.json.decode(text)  # Spark also writes nan and inf
    except (PySparkException, RecursionError, ValueError) as error:
        raise InvalidInput(f"{name} is a variant that JSON cannot hold: {error}") from error
    return msgspec.Raw(text)


_READERS: tuple[tuple[tuple[type[t.DataType], ...], _Reader], ...] = (
    ((t.FloatType, t.DoubleType), _floats),
    ((t.StructType,), _structs),
    ((t.ArrayType,), _lists),
    ((t.MapType,), _maps),
    ((t.TimestampType, t.TimestampNTZType), _times),
    ((t.VariantType,), _variants),
)
