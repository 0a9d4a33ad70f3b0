"""peek and show: what a queue holds."""

from __future__ import annotations

from collections.abc import Iterator

import click

from delayq.model.message_info import MessageInfo
from delayq.model.outcome import cause
from delayq.model.placement import State
from delayq.model.text import printable_id
from delayq.queue import Queue

from . import lakes
from .formats import show_moment
from .history import event_document, note_nothing, print_history
from .options import command, id_argument, json_option, queue_argument, state_option
from .output import (
    PREVIEW,
    note,
    payload_text,
    plural,
    print_fields,
    print_json,
    print_table,
    record,
    say,
    shortened,
)

SHOWN = 10
PAGE = 500  # messages of a round trip

limit_option = click.option(
    "--limit", type=click.IntRange(1, 1_000_000), help=f"The most to list. Default: {SHOWN}, or with --json all."
)


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --delay 1h
    delayq peek emails --state pending
    """,
    "Look at messages without taking them.",
)
@queue_argument
@state_option
@limit_option
@json_option
def peek(queue: Queue, state: State, limit: int | None, as_json: bool) -> None:
    """Look at messages of QUEUE without taking them: those due first."""
    print_messages(queue, state, limit, as_json)


def print_messages(queue: Queue, state: State, limit: int | None, as_json: bool) -> None:
    """Print messages of one state, a line each, and say when there are more.

    Args:
        limit: None for SHOWN of them, or as JSON for all.
    """
    most = limit or (None if as_json else SHOWN)
    messages = _all(queue, state) if most is None else queue.peek(state, most)
    if as_json:
        for message in messages:
            print_json(record(message))
    elif not messages:
        note(f"no message in {state}")
    else:
        when = {"unack": "lease until", "dead": "died", "garbage": ""}.get(state, "due")
        columns = ["id", when, "#attempts", "error", "payload"]
        print_table(columns, map(_row, messages))
    if most is not None and (total := getattr(queue.stats(), state)) > most:
        note(f"{most:,} of {total:,} messages shown; --limit N shows more, --json shows all")


def _all(queue: Queue, state: State) -> Iterator[MessageInfo]:
    page = queue.page(state, limit=PAGE)
    yield from page.messages
    while page.after is not None:
        page = queue.page(state, after=page.after, limit=PAGE)
        yield from page.messages


def _row(info: MessageInfo) -> list[object]:
    at = info.due_at or info.lease_until or info.died_at
    return [
        printable_id(info.id),
        show_moment(at),
        info.attempts,
        shortened(cause(info.reason, info.error), PREVIEW),
        payload_text(info, PREVIEW),
    ]


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --id order-42 --delay 1h
    delayq show emails order-42
    delayq show emails order-42 --history
    """,
    "Show all that is known of a message.",
)
@lakes.queue_argument
@id_argument
@click.option("--history", is_flag=True, help="And what became of it so far, from the queue's ledger.")
@json_option
def show(queue: Queue, message_id: str, history: bool, as_json: bool) -> None:
    """Show all that is known of the message ID of QUEUE; with --lake, also of one that rests there, deferred.

    Exit code 1 when there is none.

    With --history, what the ledger tells of it follows, and one that is gone is known by that alone. A ledger is kept
    from the moment on when it is switched on: delayq configure QUEUE --events.
    """
    info = queue.get(message_id)
    if history:
        _show_with_history(queue, message_id, info, as_json)
    else:
        show_message(queue, message_id, info, as_json)


def _show_with_history(queue: Queue, message_id: str, info: MessageInfo | None, as_json: bool) -> None:
    events = queue.history(message_id)
    if not events:
        note_nothing(queue, message_id)
    if info is None and not events:
        show_message(queue, message_id, info, as_json)
    if as_json:
        known = {"id": message_id, "queue": queue.name, "state": None} if info is None else record(info)
        print_json(known | {"history": list(map(event_document, events))})
        return
    if info is None:
        note(f"queue {queue.name} has no message {message_id!r} any more: this is what its ledger tells")
    else:
        print_fields(_fields(info))
    if info is not None and events:
        say("")
    if events:
        print_history(events)


def show_message(queue: Queue, message_id: str, info: MessageInfo | None, as_json: bool) -> None:
    """Print a message; raise an error for one that is not there."""
    if info is None:
        raise click.ClickException(f"queue {queue.name} has no message {message_id!r} (any more)")
    if as_json:
        print_json(record(info))
    else:
        print_fields(_fields(info))


def _fields(info: MessageInfo) -> list[tuple[str, object]]:
    state = f"{info.state} (in flight, and will not be retried)" if info.cancelled else info.state
    known: list[tuple[str, object]] = [("id", info.id), ("queue", info.queue), ("state", state)]
    times = ("due_at", "lease_until", "died_at", "created_at", "expires_at")
    known += [
        (name.removesuffix("_at").replace("_", " "), show_moment(getattr(info, name)))
        for name in times
        if getattr(info, name) is not None
    ]
    known.append(("attempts", info.attempts))
    if info.retries_used != info.attempts - (info.state == "unack"):  # after a requeue, or RetryAfter(counts=False)
        known.append(("retries used", info.retries_used))
    further = (("max retries", info.max_retries), ("reason", info.reason), ("error", info.error))
    known += [(name, value) for name, value in further if value is not None]
    known += [(f"header {name}", value) for name, value in (info.headers or {}).items()]
    if info.body is None:
        known.append(("payload", "gone, or unreadable"))
    else:
        known.append(("payload", f"{payload_text(info)} ({plural(len(info.body), 'byte')})"))
    return known
