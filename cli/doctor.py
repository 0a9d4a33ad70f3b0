"""doctor: check queues for faults, and repair them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

import click

from delayq.doctor import Report, Step
from delayq.lake.shown_path import shown
from delayq.model.show import plural

from . import candidates
from .connection import ServerOptions
from .lake import options as lakes
from .options import command, json_option, server_options
from .output import note, print_json, say
from .progress import ProgressBar, progress
from .relay import check_outbox


@command(
    """
    delayq send emails hello --delay 1h
    delayq doctor emails
    """,
    "Check queues, and repair them.",
)
@click.argument("names", metavar="[QUEUE]...", nargs=-1, shell_complete=candidates.queues)
@click.option("--lake", metavar="PATH", help="Also check the queues' messages in this lake.")
@click.option(
    "--outbox",
    "database_url",
    envvar="DELAYQ_DATABASE_URL",
    show_envvar=True,
    metavar="DATABASE_URL",
    help="Also check the outbox in this database.",
)
@click.option("--repair", is_flag=True, help="Repair what can be repaired, and print each step.")
@server_options
@json_option
def doctor(
    server: ServerOptions, names: Sequence[str], lake: str | None, database_url: str | None, repair: bool, as_json: bool
) -> int:
    """Check each QUEUE, or all queues: that each message is in one place, has its payload, and is counted.

    Also check the server's clock and settings, and print the versions in use. You can run this on a queue in use. Exit
    code 1 if a queue has a fault.
    """
    logging.getLogger("delayq").setLevel(logging.ERROR)  # the report has these warnings
    healthy = True
    in_lake = [] if lake is None else lakes.check(lake)
    if lake is not None and not in_lake:
        note(f"the lake {shown(lake)} holds no messages")
    known_names = sorted({*server.queue_names(), *in_lake})
    chosen = list(dict.fromkeys(names)) or known_names
    if not chosen:
        note("no queues")
    for name in chosen:
        if name not in known_names:
            note(f"queue {name} does not exist: nothing was ever sent to it, or the server has lost its data")
    with progress(f"examining {chosen[0] if len(chosen) == 1 else plural(len(chosen), 'queue')}", None) as bar:
        reports = server.examine(chosen, repair, _teller(bar))
    for name, report in zip(chosen, reports, strict=True):
        if lake is not None and name in in_lake:
            with progress(f"examining {name}", None) as bar:
                lakes.examine(server.queue(name), lake, report, partial(_teller(bar), name))
        healthy = healthy and report.healthy
        if as_json:
            known = {"queue": name, "healthy": report.healthy, "shards": report.shards, "messages": report.messages}
            print_json(known | {"findings": report.findings, "versions": report.versions, "servers": _servers(report)})
        else:
            _print(name, report)
    if not as_json:
        _print_versions(reports)
    if database_url is not None:
        healthy = check_outbox(database_url, as_json) and healthy
    return 0 if healthy else 1


def _teller(bar: ProgressBar) -> Callable[[str, Step], None]:
    """Return the function that reports steps: it moves the bar, and prints a line for each repair."""
    last: dict[str, Step] = {}
    done = total = 0

    def tell(name: str, step: Step) -> None:
        nonlocal done, total
        before = last.get(name, Step("", 0, 0))
        last[name] = step
        done, total = done + step.done - before.done, total + step.total - before.total
        bar.reach(done, total)
        if step.finding is not None and step.finding.repaired:
            note(f"{name}: {step.text}")

    return tell


def _print(name: str, report: Report) -> None:
    condition = "healthy" if report.healthy else "NOT healthy"
    say(f"{name}: {condition}, {plural(report.messages, 'message')} examined")
    for finding in report.findings:
        say(f"  {'repaired' if finding.repaired else finding.severity}: {finding}")
    for line in report.versions.lines() if report.versions else ():
        say(f"  {line}")


def _print_versions(reports: Sequence[Report]) -> None:
    found = next((report.versions for report in reports if report.versions), None)
    if found:
        here = [
            f"{name} {version}" for name, version in (("delayq", found.delayq), ("redis-py", found.redis_py)) if version
        ]
        servers = dict.fromkeys(product for report in reports for product in _servers(report))
        say(f"versions: {', '.join([*here, *servers])}")


def _servers(report: Report) -> list[str]:
    """Return the servers of a queue, each as its name and version."""
    return list(dict.fromkeys(server.product for server in report.servers if server.product))
