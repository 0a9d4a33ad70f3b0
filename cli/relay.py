"""relay: bring committed messages of an outbox into Redis."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import click

from delayq import signals
from delayq.model.show import plural, show_duration
from delayq.model.units import from_ms

from .connection import ServerOptions
from .consume.monitor import Monitor, monitor_options
from .formats import show_moment
from .lag import condition, exposed
from .options import command, json_option, limit_option, log_options, server_options
from .output import print_json, print_table, say

if TYPE_CHECKING:
    from delayq.outbox.database import Database
    from delayq.outbox.lag import Lag
    from delayq.outbox.relay import Relay

    from .relay_metrics import RelayMetrics

ALL = "all"
LONGEST_LAG = 60.0
"""Seconds that a row may wait in a healthy outbox: a relay sends it within a second."""

HELD_COLUMNS = ("prefix", "queue", "next try", "error")
COLUMNS = ("id", "prefix", "queue", "attempts", "created", "error")


@command(
    """
    delayq relay sqlite:///shop.db --create-table
    delayq relay sqlite:///shop.db --burst --url embedded://
    """,
    "Send the committed messages of an outbox to Redis.",
)
@click.argument("database_url", metavar="DATABASE_URL", envvar="DELAYQ_DATABASE_URL")
@click.option("--burst", is_flag=True, help="Exit once no row is left to send.")
@click.option(
    "--wait-replicas",
    type=click.IntRange(0, 1000),
    default=0,
    metavar="N",
    help="Delete a row once this many replicas have its message.",
)
@click.option("--create-table", is_flag=True, help="Create the table unless it exists, and exit.")
@click.option("--status", is_flag=True, help="Show how many rows wait, and why, and exit.")
@click.option("--metrics", is_flag=True, help="Print how many rows wait, and how long, for Prometheus, and exit.")
@click.option(
    "--retry",
    metavar="ID|QUEUE|all",
    help="Send the refused row with this ID again, try the held rows of this QUEUE now, or both for 'all', and exit.",
)
@limit_option
@server_options
@log_options
@partial(monitor_options, whose="relay's")
@json_option
def relay(
    server: ServerOptions, database_url: str, burst: bool, wait_replicas: int, create_table: bool, status: bool,
    metrics: bool, retry: str | None, limit: int, log_format: str, log_level: str, as_json: bool, monitor: Monitor,
) -> None:  # fmt: skip
    """Send the committed rows of an outbox to Redis, until SIGTERM or Ctrl-C: see docs/outbox.md.

    DATABASE_URL is an SQLAlchemy URL, such as postgresql://user@host/name or sqlite:///folder/file.db. If it has a
    password, set DELAYQ_DATABASE_URL instead, because ps shows arguments. Several relays may run on PostgreSQL, but
    only one on SQLite. All queues of an outbox are on one server: give --url or DELAYQ_URL.

    A row that Redis refuses permanently, because its queue is full or its message is too large, is set aside: --status
    lists such rows, and --retry sends them again. If a queue refuses all messages for a while, its rows are held, and
    those of other queues are sent: --status lists such queues, and --retry lets the relay try them now.
    """
    modes = {"burst": burst, "create-table": create_table, "status": status, "metrics": metrics, "retry": retry}
    if len(several := [f"--{name}" for name, value in modes.items() if value]) > 1:
        raise click.UsageError(f"give only one of {', '.join(several)}")
    from delayq.outbox.database import open_database  # noqa: PLC0415  # few programs have an outbox
    from delayq.outbox.lag import lag  # noqa: PLC0415
    from delayq.outbox.relay import Relay  # noqa: PLC0415

    from .logging import configure  # noqa: PLC0415  # imports structlog

    database = open_database(database_url)
    try:
        if create_table:
            with database.writing():
                for statement in database.statements.create:
                    database.execute(statement)
            say("the database has the table delayq_outbox")
        elif retry:
            _retry(database, retry)
        elif metrics:
            for line in exposed(lag(database)):
                say(line)
        elif status:
            _show(database, lag(database), limit, as_json)
        else:
            runner = Relay(database, _named(server), wait_replicas=wait_replicas)
            configure(log_format, log_level, of_servers=True)  # type: ignore[arg-type]  # click has checked them
            with monitor.serving_relay(lambda: _metrics(database_url, runner), runner):
                _run(database, runner, burst)
    except database.errors as error:
        raise click.ClickException(f"the database: {error}") from error
    finally:
        database.close()


def _named(server: ServerOptions) -> str:
    if server.url is None:  # rows that were sent into a new store would be gone
        raise click.UsageError("give the server of the queues with --url or DELAYQ_URL: embedded:// for ./.delayq")
    return server.url


def _run(database: Database, runner: Relay, burst: bool) -> None:
    from delayq.outbox.lag import lag  # noqa: PLC0415

    try:
        database.execute(database.statements.counts)  # a wrong URL or a missing table ends it at once
        with signals.stopping() as stop:
            runner.run(stop, burst)
    finally:
        runner.close()
    if burst:
        waiting = lag(database).unsent
        say(
            f"{plural(runner.moved, 'message')} sent, {runner.refused} refused" + f", {waiting} waiting" * bool(waiting)
        )
        if waiting and not runner.moved:
            raise click.ClickException("no row could be sent: the log says why")


def _metrics(database_url: str, runner: Relay) -> RelayMetrics:
    from .relay_metrics import RelayMetrics  # noqa: PLC0415  # needs prometheus_client

    return RelayMetrics(database_url, runner)


def _retry(database: Database, what: str) -> None:
    from delayq.outbox.lag import held_queues  # noqa: PLC0415

    statements = database.statements
    found = database.execute(statements.retry, id="" if what == ALL else what)
    firsts = [each.seq for each in held_queues(database) if what in (ALL, each.queue)]
    tried = database.execute(statements.try_now(firsts)) if firsts else []
    if not found and not tried and what != ALL:
        raise click.ClickException(f"the outbox has no refused row or held queue {what!r}: --status lists them")
    say(f"{plural(len(found), 'row')} to send again" + f", {plural(len(tried), 'held queue')} to try now" * bool(tried))


def _show(database: Database, lag: Lag, limit: int, as_json: bool) -> None:
    from delayq.outbox.lag import held_queues  # noqa: PLC0415

    held = [
        (each.prefix, each.queue, from_ms(each.due_ms), each.error or "")
        for each in islice(held_queues(database), limit)
    ]
    found = database.execute(database.statements.refused, most=limit)
    rows = [dict(zip(COLUMNS, row, strict=True)) | {"created": from_ms(row[4])} for row in found]
    if as_json:
        names = [each.replace(" ", "_") for each in HELD_COLUMNS]
        queues = [dict(zip(names, each, strict=True)) for each in held]
        print_json({**lag._asdict(), "queues": queues, "rows": rows})
        return
    say(condition(lag))
    if held:
        print_table(HELD_COLUMNS, [[*names, show_moment(due), error] for *names, due, error in held])
    if rows:
        print_table(COLUMNS, [[*list(row.values())[:4], show_moment(row["created"]), row["error"]] for row in rows])


def check_outbox(database_url: str, as_json: bool) -> bool:
    """Print the condition of an outbox; return whether it is healthy: relays keep up, and Redis has refused no row."""
    from delayq.outbox.database import open_database  # noqa: PLC0415
    from delayq.outbox.lag import lag  # noqa: PLC0415

    database = open_database(database_url)
    try:
        found = lag(database)
    except database.errors as error:
        raise click.ClickException(f"the database: {error}") from error
    finally:
        database.close()
    is_healthy = not found.refused and max(found.seconds, found.sent_seconds) < LONGEST_LAG
    if as_json:
        print_json({"outbox": found._asdict(), "healthy": is_healthy})
        return is_healthy
    say(f"outbox: {'healthy' if is_healthy else 'NOT healthy'}, {condition(found)}")
    if found.seconds >= LONGEST_LAG:
        say("  error: no relay keeps up: run delayq relay, and look at its log")
    if found.held and found.seconds >= LONGEST_LAG:
        say("  error: queues refuse their rows: delayq relay --status says why")
    if found.sent_seconds >= LONGEST_LAG:
        say(f"  error: rows were sent {show_duration(found.sent_seconds)} ago, and not deleted: see the relay's log")
    if found.refused:
        say("  error: Redis has refused rows: delayq relay --status lists them, --retry sends them again")
    return is_healthy
