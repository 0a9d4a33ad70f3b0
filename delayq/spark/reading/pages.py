"""Pages of messages: consecutive messages of a state, as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from delayq.model.delivery import Deliveries
from delayq.model.envelope import JSON, STAMP, Envelope, parse_many
from delayq.model.placement import Row, State
from delayq.model.task_name import task_of
from delayq.model.text import decode_deliveries, decode_text, is_foreign_id, printable_id
from delayq.model.units import MAX_TIME_MS
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
        cells = [_CELLS[field.name.lower()](self) for field in schema]
        arrays = [
            each if isinstance(each, pa.Array) else pa.array(each, field.type)
            for each, field in zip(cells, schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

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
        if SCORES.get(self.state) != column:
            return self.same(None)
        scores = list(map(float, [score for _, score in self.rows]))
        if scores and min(scores) >= 0 and max(scores) <= MAX_TIME_MS:
            return [int(score) * 1000 for score in scores]
        return list(map(micros, scores))

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
        return parse_many(self.looked_up("envelope"))

    def of_envelopes(self, cell: Callable[[Envelope], Any]) -> list[Any]:
        """Return a column from the envelopes."""
        return [None if each is None else cell(each[1]) for each in self.envelopes]

    def payloads(self) -> pa.Array | list[str | None]:
        """Return the JSON texts of the payloads."""
        bodies = [each[1].body if each is not None and each[1].kind == JSON else None for each in self.envelopes]
        try:
            return pa.array(bodies, pa.string())
        except pa.ArrowInvalid:  # bytes that are not text
            return self.of_envelopes(payload_cell)


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
    "payload": lambda page: page.payloads(),
    "body": lambda page: page.of_envelopes(lambda envelope: envelope.body),
    "envelope": lambda page: [each and each[STAMP:] for each in page.looked_up("envelope")],
}
