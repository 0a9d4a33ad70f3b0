"""The history of messages from a queue's ledger, in words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import msgspec

from delayq.model.event import Event
from delayq.model.show import show_duration
from delayq.model.text import printable_id
from delayq.queue import Queue

from .formats import show_date, show_moment
from .output import note, print_filled, shortened

MOST_REASON = 200  # characters


def event_document(event: Event) -> dict[str, Any]:
    """Return an event for printing as JSON."""
    return msgspec.structs.asdict(event)


def event_text(event: Event) -> str:
    """Return an event as one line."""
    attempt = [] if event.attempt is None else [f"attempt {event.attempt}"]
    late = [] if event.late is None else [f"{_ms(event)} late"]
    due = [f"due {show_date(due_at)}"] if (due_at := _next_due(event)) else []
    consumer = [] if event.consumer is None else [f"by {event.consumer}"]
    said = ", ".join([f"{printable_id(event.id)} {event.event}", *attempt, *late, *due, *consumer])
    return said if event.reason is None else f"{said}: {event.reason}"


def print_history(events: Sequence[Event], long: bool) -> None:
    """Print a message's events, one per line, each with the time since the first."""
    rows = [
        (
            show_moment(event.at, long),
            _after(events[0], event),
            event.event,
            event.attempt or "",
            _ms(event),
            _wait(event),
            event.consumer or "",
            shortened(event.reason or "", MOST_REASON),
        )
        for event in events
    ]
    titles = ("time", "#after", "event", "#attempt", "#late", "#due in", "consumer", "reason")
    print_filled(titles, rows, 3)


def note_nothing(queue: Queue, message_id: str) -> None:
    """Say why there is no history of a message."""
    if queue.configuration().events is None:
        note(f"queue {queue.name} keeps no ledger: to start one, run delayq configure {queue.name} --events")
    else:
        note(f"the ledger of queue {queue.name} has no entry for {message_id!r}")


def _after(first: Event, event: Event) -> str:
    return show_duration(max(0.0, (event.at - first.at).total_seconds())) if event is not first else ""


def _ms(event: Event) -> str:
    return "" if event.late is None else f"{event.late * 1000:,.0f}ms"


def _next_due(event: Event) -> dt.datetime | None:
    """Return when the message is due next; None if the event already has its lateness."""
    return event.due_at if event.late is None else None


def _wait(event: Event) -> str:
    due = _next_due(event)
    return "" if due is None else show_duration(max(0.0, (due - event.at).total_seconds()))
