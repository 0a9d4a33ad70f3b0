"""The work of a task on dead letters: edit each and requeue it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from delayq.errors import InvalidInput, UnreadableEnvelope
from delayq.model.envelope import Envelope, open_body, parse_unstamped
from delayq.model.outcome import error_text
from delayq.model.progress import Progress
from delayq.operations.bulk.edit import SeenLetter, requeue_seen
from delayq.queue import Queue
from delayq.spark.redis_options import RedisOptions

Edit: TypeAlias = Callable[[dict[str, Any]], Mapping[str, Any] | None]
"""A function that edits a dead letter.

It is called with the columns of ``dead`` as a dict; payload and headers are as they were sent. It returns a dict with a
new ``payload``, new ``headers`` or both, or None to send the message again unchanged. If it raises, the message stays
dead.
"""

SENT, GONE, FAILED = "sent", "gone", "failed"
AT_ONCE = 100  # in a round trip
BURSTS = 10  # a second: messages for one tenth of a second may come back at once
MOST_REASONS = 10

_CHANGES = {"payload", "headers"}


class EditOutcome(NamedTuple):
    """The result for a dead letter, and the reason if its edit failed."""

    outcome: str
    reason: str | None = None


class DeadLetterEditor:
    """Requeues the dead letters of a task. It is sent to the tasks.

    Args:
        rate: the most messages a second; None for no limit.
    """

    def __init__(self, server: RedisOptions, queue: str, edit: Edit | None, delay: float, rate: float | None) -> None:
        self._server = server
        self._queue = queue
        self._edit = edit
        self._delay = delay
        self._rate = rate

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[list[EditOutcome]]:
        """Yield the result for each dead letter."""
        size = AT_ONCE if self._rate is None else max(1, min(AT_ONCE, int(self._rate / BURSTS)))
        reasons: set[str] = set()
        progress = Progress("dead letters of this task are sent again")
        with progress.explained(": a second run sends the others"), self._server.queue(self._queue) as queue:
            for batch in batches:
                results: list[EditOutcome] = []
                for start in range(0, batch.num_rows, size):
                    rows = batch.slice(start, size).to_pylist(maps_as_pydicts="strict")
                    began = time.monotonic()
                    outcomes = self._bring_back(queue, rows, progress)
                    results += _with_some(outcomes, reasons)
                    self._wait(began, sum(each.outcome == SENT for each in outcomes))
                yield results

    def _wait(self, began: float, sent: int) -> None:
        if self._rate is not None:
            time.sleep(max(0.0, began + sent / self._rate - time.monotonic()))

    def _bring_back(self, queue: Queue, rows: Sequence[dict[str, Any]], progress: Progress) -> list[EditOutcome]:
        edited = list(map(self._edited, rows))
        letters = [each for each in edited if isinstance(each, SeenLetter)]
        requeued = map(_outcome, queue.execute(requeue_seen, letters, self._delay, progress))
        return [next(requeued) if isinstance(each, SeenLetter) else each for each in edited]

    def _edited(self, row: dict[str, Any]) -> SeenLetter | EditOutcome:
        try:
            changes = {} if self._edit is None else _changes(self._edit(_as_sent(row)))
        except BaseException as error:  # noqa: BLE001  # SystemExit, too: an edit must not end its task
            return EditOutcome(FAILED, error_text(error))
        return SeenLetter(row["id"], row["died_at"], changes)


def _outcome(result: bool | InvalidInput) -> EditOutcome:
    if isinstance(result, InvalidInput):
        return EditOutcome(FAILED, str(result))
    return EditOutcome(SENT if result else GONE)


def _as_sent(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for the user's function, with the payload and headers that were sent."""
    stored = row.pop("envelope")
    envelope: Envelope | None = None
    try:
        envelope = parse_unstamped(stored or b"")
        payload = open_body(envelope)
    except UnreadableEnvelope:
        payload = None
    return row | {"payload": payload, "headers": dict(envelope.sent_headers) if envelope else {}}


def _changes(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(
            f"the edit returned a value of type {type(given).__name__}: return a dict with payload or headers, or None"
        )
    if unknown := set(given) - _CHANGES:
        raise ValueError(
            f"the edit returned {', '.join(sorted(map(repr, unknown)))}: it can only change payload and headers"
        )
    return dict(given)


def _with_some(outcomes: Sequence[EditOutcome], reasons: set[str]) -> Iterator[EditOutcome]:
    """Yield outcomes with a bounded number of different reasons, as each message may have another one."""
    for each in outcomes:
        if each.reason is not None and len(reasons) < MOST_REASONS:
            reasons.add(each.reason)
        yield each if each.reason in reasons else each._replace(reason=None)
