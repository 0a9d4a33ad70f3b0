"""Pages of messages: consecutive messages of a state, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from delayq.errors import UnreadableEnvelope
from delayq.model.delivery import Deliveries
from delayq.model.envelope import STAMP, Envelope, parse
from delayq.model.placement import Row, State
from delayq.model.task_name import task_of
from delayq.model.text import decode_deliveries, decode_text, is_foreign_id, printable_id
from delayq.spark.reading.cells import headers_cell, payload_cell
from delayq.spark.reading.schema import int32, micros

COLUMNS = {
    "id": "string",
    "queue": "string",
    "state": "string",
    "due_at": "timestamp",
    "lease_until": "timestamp",
    "died_at": "timestamp",
    "attempts": "int",
    "deliveries": "string",
    "error": "string",
    "reason": "string",
    "cancelled": "boolean",
    "created_at": "timestamp",
    "expires_at": "timestamp",
    "max_retries": "int",
    "task": "string",
    "headers": "map<string,string>",
    "payload": "string",
    "body": "binary",
    "envelope": "binary",
}

FIELDS = {
    **{name: name for name in ("attempts", "error", "reason", "cancelled")},
    "deliveries": "attempts",
    **dict.fromkeys(("created_at", "expires_at", "max_retries", "task", "headers"), "envelope"),
    **dict.fromkeys(("payload", "body", "envelope"), "envelope"),
}
"""The field of a message that each column needs, besides its id and score."""

SCORES = {"pending": "due_at", "ready": "due_at", "retry": "due_at", "unack": "lease_until", "dead": "died_at"}
"""The columns that show the score of a message, by its state."""


class StatePage:
    """Messages of a state with their scores, and the data that was looked up.

    Args:
        known: the data from Redis by field, as `partitions.look_up` returns it. What was not looked up is null.
    """

    def __init__(self, queue: str, state: State, rows: Sequence[Row], known: Mapping[str, Sequence[Any]]) -> None:
        self.queue = queue
        self.state = state
        self.rows = rows
        self.known = known

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """Return the columns of a schema."""
        cells = [pa.array(_CELLS[field.name.lower()](self), field.type) for field in schema]
        return pa.RecordBatch.from_arrays(cells, schema=schema)

    @property
    def ids(self) -> list[str]:
        """The ids; one that is not UTF-8, written by another program, in a printable form."""
        ids = [message_id for message_id, _ in self.rows]
        return list(map(printable_id, ids)) if is_foreign_id("".join(ids)) else ids

    def same(self, value: Any) -> list[Any]:
        """Return a column with the same value in all cells."""
        return [value] * len(self.rows)

    def scores(self, column: str) -> list[int | None]:
        """Return the scores as times, if the column shows the score in this state."""
        is_meant = SCORES.get(self.state) == column
        return [micros(float(score)) for _, score in self.rows] if is_meant else self.same(None)

    def looked_up(self, field: str) -> Sequence[Any]:
        """Return the data from Redis."""
        return self.known.get(field, self.same(None))

    def attempts(self) -> list[int | None]:
        """Return the deliveries that counted, including the running one."""
        running = int(self.state == "unack")
        stored = self.looked_up("attempts")
        return [int32(Deliveries.read(decode_deliveries(each)).past + running) if each else running for each in stored]

    @cached_property
    def envelopes(self) -> list[tuple[int, Envelope] | None]:
        """When each was sent, ms, and its envelope; None if that is gone or unreadable."""
        return list(map(_opened, self.looked_up("envelope")))

    def of_envelopes(self, cell: Callable[[Envelope], Any]) -> list[Any]:
        """Return a column from the envelopes."""
        return [None if each is None else cell(each[1]) for each in self.envelopes]


def _opened(stored: bytes | None) -> tuple[int, Envelope] | None:
    try:
        return None if stored is None else parse(stored)
    except UnreadableEnvelope:
        return None


def _expires_at(opened: tuple[int, Envelope] | None) -> int | None:
    if opened is None or opened[1].expires_ms is None:
        return None
    return micros(opened[0] + opened[1].expires_ms)


_CELLS: dict[str, Callable[[StatePage], Sequence[Any]]] = {
    "id": lambda page: page.ids,
    "queue": lambda page: page.same(page.queue),
    "state": lambda page: page.same(page.state),
    "due_at": lambda page: page.scores("due_at"),
    "lease_until": lambda page: page.scores("lease_until"),
    "died_at": lambda page: page.scores("died_at"),
    "attempts": lambda page: page.attempts(),
    "deliveries": lambda page: list(map(decode_text, page.looked_up("attempts"))),
    "error": lambda page: [decode_text(each) or None for each in page.looked_up("error")],
    "reason": lambda page: [decode_text(each) for each in page.looked_up("reason")],
    "cancelled": lambda page: list(map(bool, page.looked_up("cancelled"))),
    "created_at": lambda page: [None if each is None else micros(each[0]) for each in page.envelopes],
    "expires_at": lambda page: list(map(_expires_at, page.envelopes)),
    "max_retries": lambda page: page.of_envelopes(lambda envelope: int32(envelope.max_retries)),
    "task": lambda page: page.of_envelopes(lambda envelope: task_of(envelope.headers)),
    "headers": lambda page: page.of_envelopes(lambda envelope: headers_cell(envelope.sent_headers)),
    "payload": lambda page: page.of_envelopes(payload_cell),
    "body": lambda page: page.of_envelopes(lambda envelope: envelope.body),
    "envelope": lambda page: [each and each[STAMP:] for each in page.looked_up("envelope")],
}
