"""Records of a topic as columns: one row per record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from delayq.errors import UnreadableEnvelope
from delayq.log import log
from delayq.model.envelope import parse_unstamped
from delayq.model.record import ENVELOPE, Entry, Record
from delayq.spark.reading.cells import HeaderCell, headers_cell, payload_cell
from delayq.spark.reading.schema import micros

COLUMNS = {
    "topic": "string",
    "shard": "int",
    "id": "string",
    "published_at": "timestamp",
    "headers": "map<string,string>",
    "payload": "string",
    "body": "binary",
}


class _PublishedCells(NamedTuple):
    """The cells with the publisher's data."""

    headers: HeaderCell | None = None
    payload: str | None = None
    body: bytes | None = None


class Records:
    """Records of a topic.

    For an entry that another program appended, the payload is its fields as a JSON object, and the body is null. An
    entry with an unreadable envelope has no headers, payload and body, and is counted.

    Args:
        schema: the wanted columns.
    """

    def __init__(self, topic: str, schema: pa.Schema) -> None:
        self._topic = topic
        self._schema = schema
        self._unreadable = 0

    def batch(self, shard: int, entries: Sequence[Entry]) -> pa.RecordBatch:
        """Return the columns of some entries."""
        ids = [entry for entry, _ in entries]
        sent = [self._sent(entry, fields or ()) for entry, fields in entries]
        cells: dict[str, Callable[[], list[Any]]] = {
            "topic": lambda: [self._topic] * len(ids),
            "shard": lambda: [shard] * len(ids),
            "id": lambda: ids,
            "published_at": lambda: [micros(int(each.partition("-")[0])) for each in ids],
            "headers": lambda: [each.headers for each in sent],
            "payload": lambda: [each.payload for each in sent],
            "body": lambda: [each.body for each in sent],
        }
        columns = [pa.array(cells[field.name.lower()](), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def tell(self) -> None:
        """Log how many could not be read."""
        if self._unreadable:
            log.warning("records unreadable", topic=self._topic, count=self._unreadable)

    def _sent(self, entry: str, fields: Sequence[bytes]) -> _PublishedCells:
        if len(fields) < 2 or fields[0] != ENVELOPE:
            values = Record(self._topic, entry, fields).values
            return _PublishedCells([], msgspec.json.encode(values).decode())
        try:
            envelope = parse_unstamped(fields[1])
        except UnreadableEnvelope:
            self._unreadable += 1
            return _PublishedCells()
        return _PublishedCells(headers_cell(envelope.sent_headers), payload_cell(envelope), envelope.body)
