"""Requeueing dead letters by filters: the options, and the progress."""

from __future__ import annotations

import functools
import re
from typing import Any

import click

from delayq.errors import DelayqError
from delayq.model.show import plural
from delayq.queue import Queue
from delayq.types import Redriven

from .options import AGE, HEADER, PATTERN, Function, added
from .output import note, print_json, say
from .progress import progress

_FILTERS = added(
    click.option(
        "--older-than", type=AGE, metavar="TIME", help="Died at least this long ago (1h, 30d), or before this time."
    ),
    click.option("--newer-than", type=AGE, metavar="TIME", help="Died within this time, or after this time."),
    click.option("--error", "text", metavar="TEXT", help="The last error contains this text (case-sensitive)."),
    click.option(
        *("--error-regex", "pattern"), type=PATTERN, metavar="REGEX",
        help="The last error matches this regular expression.",
    ),
    click.option("--reason", metavar="TEXT", help="Has exactly this reason."),
    click.option(
        *("--header", "-H", "headers"), type=HEADER, multiple=True, metavar="NAME=VALUE",
        help="Has this header; repeatable.",
    ),
)  # fmt: skip


def filter_options(function: Function) -> Function:
    """The filter options; the function gets those given as `filters`, keyword arguments of `DeadLetters.redrive`."""

    @functools.wraps(function)
    def with_filters(*args: Any, text: str | None, pattern: re.Pattern[str] | None, **kwargs: Any) -> Any:
        if text is not None and pattern is not None:
            raise click.UsageError("give either --error or --error-regex, not both")
        known = {name: kwargs.pop(name) for name in ("older_than", "newer_than", "reason")}
        known |= {"error": pattern if text is None else text, "headers": dict(kwargs.pop("headers")) or None}
        given = {name: value for name, value in known.items() if value is not None}
        return function(*args, filters=given, **kwargs)

    return _FILTERS(with_filters)


def redrive(queue: Queue, options: dict[str, Any], dry_run: bool, as_json: bool) -> None:
    """Run a redrive to its end and print the result; if it is interrupted, also print how to continue."""
    redriven: Redriven | None = None
    with progress(f"{'looking at' if dry_run else 'requeueing'} {queue.name}", None) as bar:

        def show(now: Redriven) -> None:
            nonlocal redriven
            redriven = now
            bar.reach(now.looked_at - (0 if dry_run else now.matched - now.moved), now.total)

        try:
            redriven = queue.dead.redrive(**options, dry_run=dry_run, progress=show)
        except (KeyboardInterrupt, DelayqError):
            bar.stop()
            if redriven is not None and redriven.total and not dry_run:
                note(f"requeued {plural(redriven.moved, 'message')} so far; continue with {_rest(redriven)}")
            raise
    if as_json:
        print_json({"matched": redriven.matched, "requeued": redriven.moved})
    elif dry_run:
        say(f"would requeue {redriven.matched:,} of {plural(redriven.total, 'dead letter')}")
    else:
        say(f"requeued {plural(redriven.moved, 'message')}")
    if not dry_run and redriven.moved < redriven.matched:
        note(f"not requeued: {redriven.matched - redriven.moved:,}, not dead or without a payload")


def _rest(redriven: Redriven) -> str:
    """Return the options that select the rest, as fixed times."""
    after = f" --newer-than {redriven.after.isoformat(timespec='milliseconds')}" if redriven.after else ""
    return f"--older-than {redriven.up_to.isoformat(timespec='milliseconds')}{after}"
