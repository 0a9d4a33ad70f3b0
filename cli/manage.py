"""cancel, reschedule, now, pause, resume and purge: change waiting messages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import click

from delayq.errors import InvalidInput
from delayq.model.actions import ACTIONS, Action, CommandText
from delayq.model.placement import PURGEABLE, State
from delayq.model.show import plural
from delayq.model.text import printable_id
from delayq.model.units import MAX_PAUSE_MS, milliseconds, parse_duration
from delayq.queue import Queue

from .formats import show_date, show_moment
from .lake import options as lakes
from .options import (
    Parsed,
    added,
    command,
    dry_run_option,
    due_options,
    id_argument,
    ids_argument,
    json_option,
    new_queue_argument,
    one_of,
    queue_argument,
    states_option,
    yes_option,
)
from .output import note, print_json, report, say
from .progress import progress


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --id order-42 --delay 1h
    delayq cancel emails order-42
    """,
    "Cancel a message.",
)
@lakes.queue_argument
@id_argument
@click.option("--running", is_flag=True, help="Also stop its handler, if a consumer runs it.")
@json_option
def cancel(queue: Queue, message_id: str, running: bool, as_json: bool) -> int:
    """Cancel the message ID of QUEUE: a waiting message or a dead letter. With --lake, also look in the lake.

    A message that is being handled is not stopped without --running, but will not be retried. With --running, async
    handlers are cancelled within 2 seconds, and pool processes and programs of --exec are ended; a handler in a thread,
    or of a batch, is only notified. Exit code 1 if the message is being handled and is not stopped, or does not exist.
    """
    outcome = queue.cancel(message_id, running=running)
    is_done = outcome in ("cancelled", "stopping")
    if as_json:
        print_json({"id": message_id, "outcome": outcome})
    elif is_done:
        say(f"{outcome} {message_id}")
    else:
        raise click.ClickException(
            f"message {message_id!r} {ACTIONS['stop' if running else 'cancel'].refusal(outcome)}"
        )
    return int(not is_done)


@command(
    """
    delayq send emails '{"to": "a@example.org"}' --id order-42 --delay 1h
    delayq reschedule emails order-42 --delay 10m
    """,
    "Change the due time of a waiting message.",
)
@lakes.queue_argument
@id_argument
@due_options
@lakes.horizon_option
@json_option
def reschedule(queue: Queue, message_id: str, delay: float | None, at: dt.datetime | None, as_json: bool) -> int:
    """Change the due time of the waiting message ID of QUEUE. Exit code 1 if it is not waiting.

    With --lake, a message in the lake moves into Redis if it is now due within the horizon; otherwise it stays in the
    lake.
    """
    one_of(delay, at)
    if delay is None and at is None:
        raise click.UsageError("give the new due time with --delay or --at")
    outcome = queue.reschedule(message_id, delay=delay, at=at)
    if as_json:
        print_json({"id": message_id, "outcome": outcome})
    elif outcome == "rescheduled":
        info = queue.get(message_id)
        say(f"rescheduled {message_id}" + (f", due {show_moment(info.due_at)}" if info else ""))
    else:
        raise click.ClickException(f"message {message_id!r} {ACTIONS['reschedule'].refusal(outcome)}")
    return int(outcome != "rescheduled")


def _pause(text: str) -> float:
    seconds = parse_duration(text)
    if not 1 <= milliseconds(seconds) <= MAX_PAUSE_MS:
        raise InvalidInput(f"{text!r} is not between 1ms and 366d: leave out --for to pause until delayq resume")
    return seconds


@command(
    """
    delayq send emails hello
    delayq pause emails --for 10m
    """,
    "Stop delivering messages, for a time or until resume.",
)
@new_queue_argument
@click.option(
    "--for",
    "seconds",
    type=Parsed("duration", _pause),
    metavar="TIME",
    help="Resume after this time, at most 366d: 30s, 10m, 2h. Default: pause until delayq resume.",
)
def pause(queue: Queue, seconds: float | None) -> None:
    """Stop delivering the messages of QUEUE, for a time or until resume.

    QUEUE still accepts messages, and running handlers finish. If QUEUE is already paused, the new end of the pause
    replaces the old one.
    """
    queue.pause(seconds)
    until = queue.stats().paused_until if seconds is not None else None
    say(f"paused {queue.name}" + (f" until {show_date(until)}" if until else ""))


@command(
    """
    delayq pause emails
    delayq resume emails
    """,
    "Deliver messages again.",
)
@queue_argument
def resume(queue: Queue) -> None:
    """Deliver the messages of QUEUE again."""
    queue.resume()
    say(f"resumed {queue.name}")


def _counts(queue: Queue, states: Sequence[State]) -> dict[State, int]:
    """Count what a purge would discard now, by structure."""
    stats = queue.stats()
    return {state: getattr(stats, state) for state in states or PURGEABLE}


def _question(queue: Queue, states: Sequence[State], **_others: object) -> str:
    counts = _counts(queue, states)
    parts = ", ".join(f"{count:,} {state}" for state, count in counts.items() if count) or "none"
    return f"Permanently discard {plural(sum(counts.values()), 'message')} of queue {queue.name} ({parts})?"


@command(
    """
    delayq send emails hello --delay 1h
    delayq purge emails --dry-run
    delayq purge emails --state pending --yes
    """,
    "Discard messages.",
)
@queue_argument
@states_option
@dry_run_option
@yes_option(_question)
@json_option
def purge(queue: Queue, states: Sequence[State], dry_run: bool, as_json: bool) -> None:
    """Discard the waiting messages and dead letters of QUEUE; they count as purged. Running messages stay."""
    counts = _counts(queue, states)
    if dry_run:
        print_count("would purge", sum(counts.values()), as_json)
        return
    with progress(f"purging {queue.name}", sum(counts.values())) as bar:
        purged = queue.purge(list(counts), bar.advance)
    print_count("purged", purged, as_json)


def print_outcomes(action: Action, outcomes: Mapping[str, str], done: str, as_json: bool) -> int:
    """Print the outcome of an action on each message; return the exit code: 1 if one of them is unchanged.

    Args:
        done: the line about a message that was changed, with {} for its id.
    """
    for message_id, outcome in outcomes.items():
        if as_json:
            print_json({"id": message_id, "outcome": outcome})
        elif outcome == action.done:
            say(done.format(printable_id(message_id)))
        else:
            note(f"message {printable_id(message_id)!r} {action.refusal(outcome)}")
    return int(set(outcomes.values()) != {action.done})


def _made(action: Action, text: CommandText) -> click.Command:
    """Return the command of an action on messages by id; the settings of the action are its options."""

    def run(queue: Queue, ids: Sequence[str], as_json: bool, **given: Mapping[str, Any] | None) -> int:
        how = {name: value for each in given.values() if each for name, value in each.items()}
        return print_outcomes(action, getattr(queue, action.name)(ids, **how), text.done, as_json)

    run.__name__, run.__doc__ = action.name, text.help
    options = [
        click.option(
            f"--{each.name}",
            type=Parsed(each.name, each.read),
            required=each.is_required,
            metavar="TEXT",
            help=each.hint or each.label,
        )
        for each in action.fields
        if not each.of_matching
    ]
    argument = lakes.queue_argument if text.in_lake else queue_argument
    return command(text.example, text.short)(added(argument, ids_argument, *options, json_option)(run))


MADE = {each.name: _made(each, each.command) for each in ACTIONS.values() if each.command}
"""The commands that are made from the rows of actions, by name."""


def print_count(done: str, count: int, as_json: bool) -> None:
    """Print how many messages were affected."""
    report({done.replace(" ", "_"): count}, f"{done} {plural(count, 'message')}", as_json)
