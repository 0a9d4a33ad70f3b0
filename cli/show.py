"""peek and show: the messages of a queue."""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from delayq.model.message_info import MessageInfo
from delayq.model.outcome import cause
from delayq.model.placement import DELIVERABLE, STATES, State
from delayq.model.queue_stats import QueueStats
from delayq.model.result import DONE, TaskResult
from delayq.model.show import plural, show_duration
from delayq.model.text import printable_id
from delayq.model.validation import MOST_LISTED
from delayq.operations import explain, results
from delayq.operations.paging import behind
from delayq.queue import Queue

from . import candidates
from .formats import show_moment
from .history import event_document, note_nothing, print_history
from .lake import options as lakes
from .options import command, json_option, long_option, queue_argument
from .output import (
    PREVIEW,
    note,
    payload_text,
    print_fields,
    print_filled,
    print_json,
    record,
    say,
    shortened,
)

SHOWN = 10
PAGE = 500  # messages per round trip

limit_option = click.option(
    "--limit",
    type=click.IntRange(1, MOST_LISTED),
    help=f"List at most this many. Default: {SHOWN}, or all with --json.",
)


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --delay 1h
    delayq peek emails
    delayq peek emails --state scheduled --json
    """,
    "List messages without taking them.",
)
@queue_argument
@click.option(
    "--state",
    metavar="STATE",
    type=click.Choice([*QueueStats.PHASES, *(state for state in STATES if state not in QueueStats.PHASES)]),
    help="Which messages; see above. Default: all waiting messages.",
)
@limit_option
@long_option
@json_option
def peek(queue: Queue, state: str | None, limit: int | None, long: bool, as_json: bool) -> None:
    """List the messages of QUEUE without taking them, the earliest due first.

    \b
    STATE is one of
      scheduled  new messages that are not due yet
      due        messages that are due but not yet taken
      running    messages that a consumer is handling
      retrying   messages whose next attempt is not due yet
      dead       messages that were rejected, or have no retry left

    STATE can also be a structure in Redis: pending, ready, unack, retry, garbage or held (for a group).
    """  # noqa: D301  # click wants the character
    print_messages(queue, state or "waiting", limit, long, as_json)


def print_messages(queue: Queue, kind: str, limit: int | None, long: bool, as_json: bool) -> None:
    """Print messages, one per line, and say if there are more.

    Args:
        kind: a phase of `QueueStats.PHASES`, a structure, or "waiting".
        limit: None for SHOWN messages, or with `as_json` for all.
    """
    counts = queue.stats()
    most = limit or (None if as_json else SHOWN)
    messages = itertools.islice(_found(queue, kind, counts.at, min(PAGE, most or PAGE)), most)
    if as_json:
        for message in messages:
            print_json(record(message) | {"phase": phase(message, counts.at)})
    elif shown := list(messages):
        _print_table(shown, kind, counts.at, long)
    else:
        note(
            {"waiting": "no messages are waiting"}.get(
                kind, f"no {kind} messages" if kind in counts.PHASES else f"no messages in {kind}"
            )
        )
    total = counts.scheduled + counts.due + counts.retrying if kind == "waiting" else getattr(counts, kind)
    if most is not None and total > most:
        note(f"{most:,} of {total:,} messages shown; --limit N shows more, --json shows all")


def _found(queue: Queue, kind: str, now: dt.datetime, page: int) -> Iterator[MessageInfo]:
    """Yield messages of a kind as they are found, the earliest due or dead first."""
    if kind in STATES:
        return _all(queue, kind, page)
    if kind == "running":
        return _all(queue, "unack", page)
    if kind in ("scheduled", "retrying"):
        return _all(queue, "pending" if kind == "scheduled" else "retry", page, after=now)
    found = heapq.merge(*(_all(queue, state, page) for state in DELIVERABLE), key=_due)
    return found if kind == "waiting" else itertools.takewhile(lambda each: _due(each) <= now, found)


def _due(info: MessageInfo) -> dt.datetime:
    assert info.due_at is not None  # it waits
    return info.due_at


def _all(queue: Queue, state: State, limit: int, after: dt.datetime | None = None) -> Iterator[MessageInfo]:
    page = queue.page(state, limit=limit, after=None if after is None else behind(after))
    yield from page.messages
    while page.after is not None:
        page = queue.page(state, after=page.after, limit=limit)
        yield from page.messages


def phase(info: MessageInfo, now: dt.datetime) -> str:
    """Return the phase of a message, in the words of `QueueStats.PHASES`."""
    if info.state not in DELIVERABLE:
        return "running" if info.state == "unack" else info.state
    return "due" if _due(info) <= now else "retrying" if info.state == "retry" else "scheduled"


def _print_table(messages: Sequence[MessageInfo], kind: str, now: dt.datetime, long: bool) -> None:
    """Print messages, without columns that are empty for all."""
    when = {"unack": "lease until", "running": "lease until", "dead": "died", "garbage": ""}.get(kind, "due")
    rows = [
        (
            printable_id(each.id),
            phase(each, now) if kind == "waiting" or kind in DELIVERABLE else "",
            show_moment(each.due_at or each.lease_until or each.died_at, long),
            each.attempts or "",
            shortened(cause(each.reason, each.error), PREVIEW),
            payload_text(each, PREVIEW),
        )
        for each in messages
    ]
    print_filled(("id", "state", when, "#attempts", "error", "payload"), rows)


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --id order-42 --delay 1h
    delayq show emails order-42
    delayq show emails order-42 --history
    """,
    "Show everything about a message, or a group of messages.",
)
@lakes.queue_argument
@click.argument("message_id", metavar="[ID]", required=False, shell_complete=candidates.ids)
@click.option("--group", metavar="ID", help="Show a group of messages instead: how many of them have not ended.")
@click.option("--history", is_flag=True, help="Also show the message's history from the queue's ledger.")
@long_option
@json_option
def show(queue: Queue, message_id: str | None, group: str | None, history: bool, long: bool, as_json: bool) -> None:
    """Show everything about the message ID of QUEUE. With --lake, also look in the lake.

    If the result of its task is kept, show that, too, even if the message is gone. Exit code 1 if neither exists.

    With --history, also show the message's entries in the ledger, which remain after the message is gone. The ledger
    has entries from the time you turn it on: delayq configure QUEUE --events.
    """
    if (message_id is None) == (group is None) or (group is not None and history):
        raise click.UsageError("give the ID of a message, or --group ID without --history")
    if group is not None:
        _show_group(queue, group, as_json)
        return
    assert message_id is not None
    _show_message(queue, message_id, history, long, as_json)


def _show_message(queue: Queue, message_id: str, history: bool, long: bool, as_json: bool) -> None:
    info = queue.get(message_id)
    result = queue.execute(results.seen, message_id, info)
    events = queue.history(message_id) if history else []
    if history and not events:
        note_nothing(queue, message_id)
    if not (info or result or events):
        raise unknown(queue, message_id)
    if as_json:
        known = {"id": message_id, "queue": queue.name, "state": None} if info is None else document(queue, info)
        known["result"] = None if result is None else msgspec.to_builtins(result)
        print_json(known | ({"history": list(map(event_document, events))} if history else {}))
        return
    if not (info or result):
        note(f"queue {queue.name} has no message {message_id!r}; this is its history in the ledger")
    print_fields([*(_fields(queue, info) if info else ()), *(_result_fields(result, info) if result else ())])
    for line in result.error.traceback.splitlines() if result and result.error else ():
        say(line)
    if events:
        if info or result:
            say("")
        print_history(events, long)


def _show_group(queue: Queue, name: str, as_json: bool) -> None:
    found = queue.group(name)
    if found is None:
        raise click.ClickException(f"queue {queue.name} has no group {name!r}, or it ended more than an hour ago")
    known = msgspec.structs.asdict(found)
    if as_json:
        print_json(known)
        return
    fields: list[tuple[str, object]] = [("id", found.id), ("queue", queue.name), ("state", found.state)]
    fields += [("members", found.total), ("left", found.left), ("dead", found.dead)]
    fields += [("then", found.then or "-"), ("created", show_moment(found.created_at))]
    if found.ended_at is not None:
        fields.append(("ended", show_moment(found.ended_at)))
    print_fields(fields)


def show_message(queue: Queue, message_id: str, info: MessageInfo | None, as_json: bool) -> None:
    """Print a message; raise an error if it does not exist."""
    if info is None:
        raise unknown(queue, message_id)
    if as_json:
        print_json(document(queue, info))
    else:
        print_fields(_fields(queue, info))


def unknown(queue: Queue, message_id: str) -> click.ClickException:
    """Return the error for a message that does not exist."""
    return click.ClickException(f"queue {queue.name} has no message {message_id!r}")


def _result_fields(result: TaskResult, info: MessageInfo | None) -> list[tuple[str, object]]:
    """Return how the task of a message ended, or failed for now: what is not said of the message itself."""
    error = result.error
    fields: list[tuple[str, object]] = []
    if info is None:
        fields += [("id", result.id), ("queue", result.queue), ("state", "gone; its result is kept")]
        fields += [("created", _moment(result.created_at)), ("attempts", result.attempts)]
        fields += [("task", result.task), ("arguments", shortened(_json(result.arguments), PREVIEW))]
        fields += [("reason", (error and error.reason) or None), ("error", error and error.line)]
    times = ("started_at", "last_attempted_at", "finished_at", "kept_until")
    fields.append(("result", result.status))
    fields += [(each.removesuffix("_at").replace("_", " "), _moment(getattr(result, each))) for each in times]
    fields.append(("consumers", ", ".join(result.consumers) or None))
    fields.append(("value", shortened(_json(result.value), PREVIEW) if result.status == DONE else None))
    return fields


def _moment(moment: dt.datetime | None) -> str | None:
    return None if moment is None else show_moment(moment)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def document(queue: Queue, info: MessageInfo) -> dict[str, Any]:
    """Return everything about a message for printing as JSON."""
    return record(info) | {"phase": phase(info, queue.stats().at)}


def _fields(queue: Queue, info: MessageInfo) -> list[tuple[str, object]]:
    state = phase(info, queue.stats().at)
    if state != info.state:
        state += f" ({info.state} in Redis)"
    if info.cancelled:
        state += ", and will not be retried"
    names = ("due_at", "lease_until", "died_at", "created_at", "expires_at")
    times = {name.removesuffix("_at").replace("_", " "): getattr(info, name) for name in names}
    ended = info.attempts - (info.state == "unack")
    is_usual = info.retries_used == min(ended, info.max_retries or 0)  # not after a requeue or RetryAfter(counts=False)
    size = "gone or unreadable" if info.body is None else f"({plural(len(info.body), 'byte')})"
    expected = queue.execute(explain.expected, info.id) if info.state in DELIVERABLE else None
    return [
        *(("id", info.id), ("queue", info.queue), ("state", state)),
        *((name, at and show_moment(at)) for name, at in times.items()),
        ("expected", None if expected is None else f"{show_moment(expected)}, at the rate of the last minutes"),
        ("attempts", info.attempts),
        ("progress", None if info.progress is None else str(info.progress)),
        ("retries used", None if is_usual else info.retries_used),
        ("max retries", info.max_retries),
        ("timeout", None if info.timeout is None else show_duration(info.timeout)),
        *(("reason", info.reason), ("error", info.error), ("task", info.task), ("schedule", info.schedule)),
        *(("member of group", info.member_of), ("after group", info.group)),
        ("slot", info.slot and show_moment(info.slot)),
        *((f"header {name}", str(value)) for name, value in (info.headers or {}).items()),
        ("payload", size if info.body is None else f"{payload_text(info)} {size}"),
    ]
