"""Entries of a ledger as columns: one row per event."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from delayq.log import log
from delayq.model.event import FIELDS, Event, read
from delayq.model.record import Entry
from delayq.model.text import printable_id
from delayq.spark.reading.schema import TIMESTAMP, column_names, int32

COLUMNS = {
    "queue": "string",
    "shard": "int",
    "entry": "string",
    "id": "string",
    "event": "string",
    "at": "timestamp",
    "attempt": "int",
    "due_at": "timestamp",
    "late": "double",
    "consumer": "string",
    "reason": "string",
}

_NAMES = [name.encode() for name in FIELDS]
_NUMBER = r"^\d{1,9}$"
_TIME = r"^\d{1,14}$"  # ms, as delayq writes them until the year 5138
_LATE = r"^-?\d{1,14}(\.\d{1,6})?$"
_WORD = r"^[a-z][a-z_]{0,63}$"


class LedgerRows:
    """Entries of a ledger. Those that delayq did not write are left out and counted.

    Args:
        schema: the wanted columns.
    """

    def __init__(self, queue: str, schema: pa.Schema) -> None:
        self._queue = queue
        self._schema = schema
        self._left_out = 0

    def batch(self, shard: int, entries: Sequence[Entry]) -> pa.RecordBatch:
        """Return the columns of some entries."""
        try:
            cells = _plain(entries)
        except (_Unusual, pa.ArrowInvalid):
            events = [event for entry, fields in entries if (event := read(entry, fields or ())) is not None]
            self._left_out += len(entries) - len(events)
            cells = _cells(events)
        count = len(cells["entry"])
        cells |= {"queue": pa.repeat(self._queue, count), "shard": pa.repeat(pa.scalar(shard, pa.int32()), count)}
        return pa.RecordBatch.from_arrays([cells[name] for name in column_names(self._schema)], schema=self._schema)

    def tell(self) -> None:
        """Log how many were left out."""
        if self._left_out:
            log.warning(
                "foreign ledger entries skipped",
                queue=self._queue,
                count=self._left_out,
            )


class _Unusual(Exception):
    """Some of the entries were not written by delayq."""


def _plain(entries: Sequence[Entry]) -> dict[str, pa.Array]:
    """Read entries like `event.read`, a column at a time; raises _Unusual if some were not written by delayq."""
    for _, fields in entries:
        if fields is None or fields[::2] != _NAMES:
            raise _Unusual
    columns = zip(*(fields[1::2] for _, fields in entries if fields is not None), strict=True)
    names = dict(zip(FIELDS, ([value or None for value in column] for column in columns), strict=True))
    texts = {name: pa.array(column, pa.string()) for name, column in names.items()}
    if texts["id"].null_count or texts["at"].null_count or texts["event"].null_count:
        raise _Unusual
    return {
        "entry": pa.array([entry for entry, _ in entries], pa.string()),
        "id": texts["id"],
        "event": _matching(texts["event"], _WORD),
        "at": _times(texts["at"]),
        "attempt": _matching(texts["attempt"], _NUMBER).cast(pa.int32()),
        "due_at": _times(texts["due"]),
        "late": pc.divide(_matching(texts["late"], _LATE).cast(pa.float64()), 1000.0),
        "consumer": texts["consumer"],
        "reason": texts["reason"],
    }


def _matching(texts: pa.Array, pattern: str) -> pa.Array:
    if pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        raise _Unusual
    return texts


def _times(texts: pa.Array) -> pa.Array:
    return pc.multiply(_matching(texts, _TIME).cast(pa.int64()), 1000).cast(TIMESTAMP)


def _cells(events: Sequence[Event]) -> dict[str, pa.Array]:
    return {
        "entry": pa.array([event.entry for event in events], pa.string()),
        "id": pa.array([printable_id(event.id) for event in events], pa.string()),
        "event": pa.array([event.event for event in events], pa.string()),
        "at": pa.array([event.at for event in events], TIMESTAMP),
        "attempt": pa.array([int32(event.attempt) for event in events], pa.int32()),
        "due_at": pa.array([event.due_at for event in events], TIMESTAMP),
        "late": pa.array([event.late for event in events], pa.float64()),
        "consumer": pa.array([event.consumer for event in events], pa.string()),
        "reason": pa.array([event.reason for event in events], pa.string()),
    }
