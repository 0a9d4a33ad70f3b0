"""Payloads from a table's own types are byte for byte the JSON that `Queue.send` makes of the same values."""

from __future__ import annotations

import datetime as dt
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_type

from delayq.errors import InvalidInput
from delayq.model.envelope import encode_envelope
from delayq.spark.writing.cells import Column, cells, documents

MOMENT = dt.datetime(2030, 1, 2, 3, 4, 5, 678_901, dt.UTC)
TEXTS = ["", 'quotes " and \\', "two\nlines\r\x00\x1f\x7f\u2028", "größer ☃ 🙂", "</script>"]
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int8(), [-128, 0, 127]),
    (pa.int64(), [-(2**63), 2**53 + 1, 2**63 - 1]),
    (pa.float32(), [1.1, -0.0, 3e38]),
    (pa.float64(), [1.1, -0.0, 1e-7, 1e22, 5e-324, 123456789.0]),
    (pa.decimal128(20, 4), [Decimal("1.5000"), Decimal("-0.0001"), Decimal("9999999999999999.9999")]),
    (pa.bool_(), [True, False]),
    (pa.string(), TEXTS),
    (pa.binary(), [b"", b"\x00\xff\n"]),
    (pa.date32(), [dt.date(1, 1, 1), dt.date(9999, 12, 31)]),
    (pa.timestamp("us", "UTC"), [MOMENT, MOMENT.replace(microsecond=0), dt.datetime(1, 1, 1, tzinfo=dt.UTC)]),
    (pa.timestamp("us", "Asia/Kolkata"), [MOMENT, MOMENT.replace(year=1900)]),
    (pa.timestamp("us"), [dt.datetime(2030, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999)]),  # noqa: DTZ001
    (pa.duration("us"), [dt.timedelta(days=3, microseconds=1), dt.timedelta(seconds=-1)]),
    (pa.time64("us"), [dt.time(1, 2, 3), dt.time(23, 59, 59, 999_999)]),
]
NAMES = ["plain", "class", "a b", "_0", "ö.☃"]


def nested(kind: pa.DataType, values: list[Any]) -> pa.Array:
    """Each value in each place it can have in a payload, and nulls at each level."""
    inner = pa.struct([(name, kind) for name in NAMES])
    outer = pa.struct(
        [
            ("value", kind),
            ("inner", inner),
            ("escaped", pa.struct([('"\n', kind)])),
            ("list", pa.list_(pa.list_(kind))),
            ("structs", pa.list_(inner)),
            ("by_name", pa.map_(pa.string(), kind)),
            ("by_number", pa.map_(pa.int32(), inner)),
        ]
    )
    rows: list[Any] = [None, {}]
    for value in [*values, None]:
        own = dict.fromkeys(NAMES, value)
        named = {"by_name": [(text, value) for text in TEXTS], "by_number": [(1, own), (2, None), (-3, {})]}
        rows += [
            {
                "value": value,
                "inner": own,
                "escaped": {'"\n': value},
                "list": [[value, None], None, []],
                "structs": [own, None, {}],
            }
            | named,
            {"value": value, "inner": None, "list": [], "structs": None, "by_name": [], "by_number": None},
        ]
    return pa.array(rows, outer)


def bodies(values: list[Any]) -> list[bytes | None]:
    return [None if value is None else encode_envelope(value, 0) for value in values]


def assert_same(array: pa.Array) -> None:
    read = Column(array, lambda part: documents(part, from_arrow_type(array.type), "payload"))
    assert read.errors == {}
    assert bodies(read.values) == bodies(array.to_pylist(maps_as_pydicts="strict"))


@pytest.mark.parametrize(
    ("kind", "values"), VALUES, ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_columns_of_each_type_become_the_json_of_their_values(kind: pa.DataType, values: list[Any]):
    array = nested(kind, values)
    assert_same(array)
    assert_same(array.slice(1))
    assert_same(array.slice(3, 2))
    assert_same(pa.concat_arrays([array] * 150))
    assert_same(array.field("structs"))
    assert_same(array.field("by_number").slice(2))


def test_map_keys_that_are_not_text_become_the_same_text():
    for kind, values in VALUES:
        if kind != pa.bool_():
            assert_same(pa.array([[(value, 1) for value in values], None, []], pa.map_(kind, pa.int64())))


FAR = 1_893_456_000_000  # milliseconds: the year 2030


@pytest.mark.parametrize(
    ("kind", "bad", "expected"),
    [
        (
            pa.struct([("at", pa.timestamp("us", "UTC"))]),
            {"at": FAR * 1_000_000},
            r"payload.at is 1893456000000 seconds .*milliseconds",
        ),
        (pa.list_(pa.timestamp("us")), [-(2**62)], r"payload\[\] is -4611686018428 seconds after 1970, which is not"),
        (
            pa.list_(pa.timestamp("us", "Asia/Tokyo")),
            [253402300799 * 10**6],
            r"payload\[\] is not between the years 1 and 9999",
        ),
        (pa.struct([("day", pa.date32())]), {"day": 10**7}, r"payload.day .*that Python cannot represent: "),
        (pa.map_(pa.string(), pa.int32()), [("a", 1), ("a", 2)], "payload has the same key more than once: 'a'"),
        (pa.struct([("n", pa.float64())]), {"n": float("nan")}, "payload.n is nan, which JSON cannot hold"),
        (pa.list_(pa.float32()), [float("-inf")], r"payload\[\] is -inf, which JSON cannot hold"),
    ],
)
def test_unsendable_value_is_named_and_the_others_stay_readable(kind: pa.DataType, bad: Any, expected: str):
    array = pa.array([None, bad], kind)
    read = Column(array, lambda part: documents(part, from_arrow_type(kind), "payload"))
    assert read.values == [None, None]
    assert list(read.errors) == [1]
    with pytest.raises(InvalidInput, match=expected):
        raise read.errors[1]


def test_variants_become_json_or_are_refused():
    good, nan = b"\x0c\x01", bytes([7 << 2]) + struct.pack("<d", float("nan"))  # 1, and NaN
    kind = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    array = pa.array([{"value": value, "metadata": b"\x01\x00\x00"} for value in (good, nan)] + [None], kind)
    read = Column(array, lambda part: documents(part, t.VariantType(), "payload"))
    assert read.values == [b"1", None, None]
    with pytest.raises(InvalidInput, match="payload is a variant that JSON cannot hold"):
        cells(array, t.VariantType(), "payload")


def test_invalid_text_is_named():
    array = pa.array([b"fine", b"\xff"]).view(pa.string())
    read = Column(array, lambda part: cells(part, t.StringType(), "payload"))
    assert (read.values, list(read.errors)) == (["fine", None], [1])
    assert str(read.errors[1]).startswith("payload has a value that Python cannot represent: 'utf-8' codec")


def test_long_column_keeps_each_error_at_its_row():
    array = pa.array([FAR * 10**6 if number % 1500 == 7 else number for number in range(4000)], pa.timestamp("us"))
    read = Column(array, lambda part: cells(part, t.TimestampNTZType(), "at"))
    assert list(read.errors) == [7, 1507, 3007]
    assert [value for value in read.values if value is not None][-1].microsecond == 3999
    assert len(read.values) == 4000
