"""stats, peek and show: what a queue holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
import msgspec

from delayq.calls import shown
from delayq.errors import DelayqError
from delayq.info import MessageInfo
from delayq.keys import STATES, State
from delayq.limits import Configuration
from delayq.operations.foreseeing import check_buckets
from delayq.outcome import cause
from delayq.queue import Queue
from delayq.stats import QueueStats, Upcoming

from . import candidates
from .configuring import fields_of
from .durations import show_duration, show_moment
from .history import event_document, note_nothing, print_history
from .options import command, id_argument, json_option, limit_option, queue_argument, server_options, state_option
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
from .server import Server
from .upcoming import bucket_option, print_upcoming, window_option

T = TypeVar("T")

LEFT = ("acked", "cancelled", "expired", "purged")
OTHER_COUNTERS = tuple(name for name in QueueStats.COUNTERS if name not in ("sent", *LEFT))


@command(
    """
    delayq send emails hello --delay 1h
    delayq stats emails
    """,
    "Count the messages of a queue, or of all queues.",
)
@click.argument("name", metavar="[QUEUE]", required=False, shell_complete=candidates.queues)
@click.option("--upcoming", is_flag=True, help="Count instead what falls due when.")
@window_option(None, "  [default: 1h]")
@bucket_option(None, "  [default: 5m]")
@server_options
@json_option
def stats(
    server: Server, name: str | None, upcoming: bool, window: float | None, bucket: float | None, as_json: bool
) -> int | None:
    """Count the messages of QUEUE, or of every queue. Exit code 1 when one of them cannot be read.

    With --upcoming, how many messages of pending and retry fall due within the next hour, in steps of five minutes;
    what is due already counts in the first.
    """
    if not upcoming and (window is not None or bucket is not None):
        raise click.UsageError("--window and --bucket go with --upcoming")
    if upcoming:
        return _upcoming(server, name, 3600 if window is None else window, 300 if bucket is None else bucket, as_json)
    if name is None:
        counts_of_all, failed = _of_all(server, Queue.stats)
        _all_stats(counts_of_all, as_json)
        return failed
    counts, limits = server.queue(name).stats(), server.queue(name).configuration()
    if as_json:
        print_json(
            stats_record(counts) | {name: value for name, value in msgspec.structs.asdict(limits).items() if value}
        )
        return None
    if not counts.sent:
        note(f"nothing was ever sent to queue {name}")
    _one_stats(counts, limits)
    return None


def _upcoming(server: Server, name: str | None, window: float, bucket: float, as_json: bool) -> int:
    def read(queue: Queue) -> tuple[str, list[Upcoming]]:
        return queue.name, queue.upcoming(window, bucket)

    check_buckets(window, bucket)
    foreseen, failed = _of_all(server, read) if name is None else ([read(server.queue(name))], 0)
    print_upcoming(foreseen, as_json)
    return failed


def _of_all(server: Server, read: Callable[[Queue], T]) -> tuple[list[T], int]:
    """Read all queues; return what was read, and the exit code: 1 when one of them could not be."""
    found: list[T] = []
    failed = 0
    for each in server.queue_names():
        try:
            found.append(read(server.queue(each)))
        except DelayqError as error:  # one that a newer delayq wrote, say: the others are told all the same
            note(f"{each}: {error}")
            failed = 1
    return found, failed


def stats_record(counts: QueueStats) -> dict[str, Any]:
    """Return the counts of a queue, to be printed as JSON."""
    record = {name: getattr(counts, name) for name in counts.__struct_fields__}
    return record | {"inside": counts.inside, "missing": counts.missing}


def _all_stats(counts: list[QueueStats], as_json: bool) -> None:
    if as_json:
        for each in counts:
            print_json(stats_record(each))
    elif not counts:
        note("no queue here: nothing was ever sent")
    else:
        columns = ["queue", *(f"#{name}" for name in ("pending", "ready", "unack", "retry", "dead", "sent", "acked"))]
        rows = [[getattr(each, column.lstrip("#")) for column in columns] + [_condition(each)] for each in counts]
        print_table([*columns, ""], rows)


def _condition(counts: QueueStats) -> str:
    if counts.paused_since:
        return "paused"
    return f"next due {show_moment(counts.next_due_at)}" if counts.next_due_at else ""


def _one_stats(counts: QueueStats, limits: Configuration) -> None:
    fields: list[tuple[str, object]] = [("queue", counts.queue)]
    if counts.paused_since:
        fields.append(("paused since", show_moment(counts.paused_since)))
    fields += fields_of(limits)
    fields += [(name, f"{getattr(counts, name):,}") for name in STATES]
    if counts.next_due_at:
        fields.append(("next due", show_moment(counts.next_due_at)))
    fields.append(("balance", balance(counts)))
    others = [name for name in OTHER_COUNTERS if name != "held_back" or counts.held_back]
    fields += [(name, f"{getattr(counts, name):,}") for name in others]
    if counts.lateness:
        quantiles = [(f"{share:.0%}", counts.lateness_quantile(share)) for share in (0.5, 0.99, 1)]
        fields.append(("lateness", ", ".join(f"{name} under {show_duration(late or 0)}" for name, late in quantiles)))
    print_fields(fields)


def balance(counts: QueueStats) -> str:
    """Return the equation that must hold: sent = what has left + what is still inside."""
    names = LEFT + (("adjusted",) if counts.adjusted else ())
    left = " + ".join(f"{getattr(counts, name):,} {name}" for name in names)
    missing = f"; {counts.missing:,} MISSING: run delayq doctor {counts.queue}" if counts.missing else ""
    return f"{counts.sent:,} sent = {left} + {counts.inside:,} inside{missing}"


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
def peek(queue: Queue, state: State, limit: int, as_json: bool) -> None:
    """Look at messages of QUEUE without taking them: those due first."""
    print_messages(queue.peek(state, limit), state, as_json)


def print_messages(messages: list[MessageInfo], state: State, as_json: bool) -> None:
    """Print messages of one state: a line each."""
    if as_json:
        for message in messages:
            print_json(record(message))
    elif not messages:
        note(f"no message in {state}")
    else:
        when = {"unack": "lease until", "dead": "died", "garbage": ""}.get(state, "due")
        columns = ["id", when, "#attempts", "error", "payload"]
        print_table(columns, map(_row, messages))


def _row(info: MessageInfo) -> list[object]:
    at = info.due_at or info.lease_until or info.died_at
    return [
        shown(info.id),
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
@queue_argument
@id_argument
@click.option("--history", is_flag=True, help="And what became of it so far, from the queue's ledger.")
@json_option
def show(queue: Queue, message_id: str, history: bool, as_json: bool) -> None:
    """Show all that is known of the message ID of QUEUE. Exit code 1 when there is none.

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
    further = (("max retries", info.max_retries), ("reason", info.reason), ("error", info.error))
    known += [(name, value) for name, value in further if value is not None]
    known += [(f"header {name}", value) for name, value in (info.headers or {}).items()]
    if info.body is None:
        known.append(("payload", "gone, or unreadable"))
    else:
        known.append(("payload", f"{payload_text(info)} ({plural(len(info.body), 'byte')})"))
    return known
