"""cron add, list, next, run, pause, resume and remove: the schedules of a queue."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from delayq.model.actions import SCHEDULE_ACTIONS
from delayq.model.delivery import Outgoing
from delayq.model.occurrence import Missed
from delayq.model.schedule import Schedule
from delayq.model.show import show_duration
from delayq.operations import inspect
from delayq.queue import Queue

from . import candidates
from .connection import ServerOptions
from .cron_file import differences, read_jobs
from .formats import Kind, payload_of, show_date, show_moment
from .options import (
    DURATION,
    JITTER,
    SLOT,
    command_group,
    header_option,
    json_option,
    kind_option,
    long_option,
    new_queue_argument,
    queue_argument,
    retries_option,
    server_options,
    task_option,
    timeout_option,
)
from .output import note, print_json, print_list, print_table, report, say

ADDS = "delayq cron add cron nightly '0 3 * * *' --timezone Europe/Berlin\n"


@command_group(ADDS + "delayq cron list cron", "Schedules: send messages at set times, like cron.")
def cron() -> None:
    """Manage schedules: messages that are sent at set times, like cron.

    No scheduler process is needed: the consumer that receives an occurrence sends the next one.
    """


name_argument = click.argument("schedule_name", metavar="NAME")


@cron.command(ADDS + "delayq cron add cron report '@daily' --exec './report.sh'", "Create or change a schedule.")
@new_queue_argument
@name_argument
@click.argument("when", metavar="WHEN")
@click.argument("payload", metavar="[PAYLOAD]", required=False)
@click.option("--exec", "program", metavar="CMD", help="A shell command as the payload; see above.")
@click.option("--timezone", default="UTC", metavar="ZONE", help="The time zone of WHEN.")
@click.option(
    "--missed",
    type=click.Choice(["once", "skip", "all"]),
    default="once",
    help="Slots missed while no consumer ran: run one late, skip those later than --grace, or run all.",
)
@click.option(
    "--grace", type=DURATION, metavar="TIME", help="With --missed skip: how late a slot may run. Default: 1m."
)
@click.option("--start", type=SLOT, metavar="ISO8601", help="Skip slots before this time; include the time zone.")
@click.option("--end", type=SLOT, metavar="ISO8601", help="Skip slots after this time; then the schedule is finished.")
@click.option(
    "--jitter",
    type=JITTER,
    default=0,
    show_default=False,
    metavar="TIME",
    help="Delay each slot by less than this; the same slot always gets the same delay.",
)
@retries_option
@timeout_option
@header_option
@task_option
@kind_option("What PAYLOAD is, as in send.", "auto")
@json_option
def add(
    queue: Queue, schedule_name: str, when: str, payload: str | None, program: str | None, timezone: str,
    missed: Missed, grace: float | None, start: dt.datetime | None, end: dt.datetime | None, jitter: float,
    max_retries: int | None, timeout: float | None, headers: Sequence[tuple[str, str]], task: str | None, kind: Kind,
    as_json: bool,
) -> None:  # fmt: skip
    """Create or change the schedule NAME of QUEUE. Repeating the command changes nothing.

    \b
    WHEN is one of
      '*/5 * * * *'     minute, hour, day of the month, month, day of the week
      '30 0 3 * * *'    the same, with seconds first
      @hourly, @daily, @weekly, @monthly, @yearly
      'every 90s', 'every 1h 30m'

    With --exec, the payload is a shell command. A consumer that pipes payloads to a shell runs it on its own machine,
    in its own folder: delayq consume QUEUE --exec sh. If the command calls delayq, add --exec-with-url.
    """  # noqa: D301  # click wants the character
    if program is not None and payload is not None:
        raise click.UsageError("give either PAYLOAD or --exec, not both")
    if start is not None and end is not None and end < start:
        raise click.UsageError(f"--end {end.isoformat()} is before --start {start.isoformat()}: give a later --end")
    chosen: Any = None if payload is None else payload_of(payload.encode(errors="surrogateescape"), kind)
    if program is not None:
        chosen = program.encode(errors="surrogateescape")
    if task is not None and chosen is None:
        chosen = {}
    message = Outgoing(chosen, max_retries=max_retries, headers=dict(headers), timeout=timeout, task=task)
    schedule = queue.schedules.add(
        schedule_name,
        when,
        message=message,
        timezone=timezone,
        missed=missed,
        grace=grace,
        start=start,
        end=end,
        jitter=jitter,
    )
    line = f"{schedule_name} in {queue.name}, {'' if schedule.finished else 'next '}{_next(schedule, long=True)}"
    report(_record(schedule), line, as_json)


@cron.command(
    "printf '[nightly]\\nwhen = \"0 3 * * *\"\\n' > jobs.toml\ndelayq cron load cron jobs.toml",
    "Replace the schedules with those in a file.",
)
@new_queue_argument
@click.argument("file", metavar="FILE.toml", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
def load(queue: Queue, file: Path, dry_run: bool) -> None:
    """Replace the schedules of QUEUE with those in FILE.toml, and show what changes.

    Each printed line starts with + for a new schedule, ~ for a changed one, or - for a removed one. Schedules that a
    program declares in code are not changed. Paused schedules stay paused.

    \b
    [nightly]
    when = "0 3 * * *"            # the rest is optional
    timezone = "Europe/Berlin"
    missed = "skip"               # or "once", "all"
    grace = "10m"
    start = 2026-12-01T00:00:00+01:00
    end = 2026-12-31T23:59:00+01:00
    jitter = "5m"
    task = "report"               # then payload has its arguments
    payload = { full = true }     # or exec = "./report.sh"
    headers = { tenant = "a" }
    max_retries = 5
    timeout = "30m"
    """  # noqa: D301  # click wants the character
    changes = differences(queue, read_jobs(queue, file))
    for change in changes:
        say(str(change))
    if not changes:
        say(f"{queue.name} already matches {file}: nothing changed")
    elif not dry_run:
        for change in changes:
            change.make(queue)


@cron.command(ADDS + "delayq cron list cron", "List schedules.", "list")
@click.argument("name", metavar="[QUEUE]", required=False, shell_complete=candidates.queues)
@click.option("--all", "everything", is_flag=True, help="The schedules of all queues.")
@long_option
@server_options
@json_option
def list_(server: ServerOptions, name: str | None, everything: bool, long: bool, as_json: bool) -> None:
    """List the schedules of QUEUE, or of all queues, by name."""
    if (name is None) != everything:
        raise click.UsageError("give either QUEUE, or --all for the schedules of all queues")
    names = server.queue_names() if name is None else [name]
    schedules = [schedule for found in server.schedules_of(names) for schedule in found]
    if as_json:
        for schedule in schedules:
            print_json(_record(schedule))
    elif not schedules:
        note("no queue has a schedule" if name is None else f"queue {name} has no schedule")
    else:
        for_tasks = any(each.task for each in schedules)
        columns = ["queue"] * everything + ["name", "when", "timezone", "missed", "next"] + ["task"] * for_tasks
        now = dt.datetime.now(dt.UTC)
        late = {each.queue for each in schedules if each.is_late(now)}
        held = {each for each in late if server.queue(each).execute(inspect.is_held_back)}
        rows = [
            (each.queue, each.name, _when(each), each.timezone, each.missed, _next(each, long, each.queue in held))
            + (each.task or "",) * for_tasks
            for each in schedules
        ]
        print_table(columns, [row[not everything :] for row in rows])


@cron.command(ADDS + "delayq cron next cron -n 3", "Show when schedules fire next.", "next")
@queue_argument
@click.argument("schedule_name", metavar="[NAME]", required=False)
@click.option("-n", "count", type=click.IntRange(1, 100_000), default=5, help="Number of slots.")
@json_option
def next_(queue: Queue, schedule_name: str | None, count: int, as_json: bool) -> None:
    """Show the next slots of the schedule NAME of QUEUE, or of all its schedules, earliest first.

    Exit code 1 if the schedule does not exist.
    """
    if schedule_name is not None:
        _check_there(queue.schedules.get(schedule_name) is not None, queue, schedule_name)
    slots = queue.schedules.next(count, schedule_name)
    rows = [(show_moment(slot.at), slot.schedule) for slot in slots]
    print_list(slots, ("at", "name"), rows, f"no schedule of queue {queue.name} will fire again", as_json)


@cron.command(ADDS + "delayq cron run cron nightly", "Send an occurrence now.")
@queue_argument
@name_argument
@json_option
def run(queue: Queue, schedule_name: str, as_json: bool) -> None:
    """Send an occurrence of the schedule NAME of QUEUE now; its slots do not change.

    Exit code 1 if the schedule does not exist.
    """
    _check_there(queue.schedules.get(schedule_name) is not None, queue, schedule_name)
    sent = queue.schedules.run_now(schedule_name)
    became = SCHEDULE_ACTIONS["run"].words.became
    report(sent._asdict(), f"{became} {sent.id} of {schedule_name} to {queue.name}", as_json)


@cron.command(ADDS + "delayq cron pause cron nightly", "Pause a schedule.")
@queue_argument
@name_argument
def pause(queue: Queue, schedule_name: str) -> None:
    """Pause the schedule NAME of QUEUE, and withdraw its waiting occurrence.

    Exit code 1 if the schedule does not exist.
    """
    _done("pause", queue.schedules.pause(schedule_name), queue, schedule_name)


@cron.command(ADDS + "delayq cron resume cron nightly", "Resume a schedule.")
@queue_argument
@name_argument
def resume(queue: Queue, schedule_name: str) -> None:
    """Resume the schedule NAME of QUEUE at its next slot. Exit code 1 if it does not exist."""
    _done("resume", queue.schedules.resume(schedule_name), queue, schedule_name)


@cron.command(ADDS + "delayq cron remove cron nightly", "Remove a schedule.")
@queue_argument
@name_argument
def remove(queue: Queue, schedule_name: str) -> None:
    """Remove the schedule NAME of QUEUE and its waiting occurrence. Exit code 1 if it does not exist."""
    _done("remove", queue.schedules.remove(schedule_name), queue, schedule_name)


def _done(act: str, there: bool, queue: Queue, name: str) -> None:
    _check_there(there, queue, name)
    say(f"{SCHEDULE_ACTIONS[act].words.became} {name}")


def _check_there(there: bool, queue: Queue, name: str) -> None:
    if not there:
        raise click.ClickException(f"queue {queue.name} has no schedule {name!r}: see delayq cron list {queue.name}")


def _when(schedule: Schedule) -> str:
    """Say when a schedule fires, with its jitter and end."""
    jitter = f", jitter {show_duration(schedule.jitter)}" if schedule.jitter else ""
    end = f", until {show_date(schedule.end)}" if schedule.end else ""
    return schedule.when + jitter + end


def _next(schedule: Schedule, long: bool, is_held: bool = False) -> str:
    """Say when a schedule fires next; it is not late while a pause or a limit holds its queue back."""
    if schedule.paused or schedule.finished:
        return "paused" if schedule.paused else "finished"
    waits = "due since " if is_held else "late since "
    return waits * schedule.is_late(dt.datetime.now(dt.UTC)) + show_moment(schedule.next_at, long)


def _record(schedule: Schedule) -> dict[str, Any]:
    known = {name: getattr(schedule, name) for name in schedule.__struct_fields__}
    if isinstance(schedule.payload, bytes):
        known["payload_base64"] = known.pop("payload")
    return known
