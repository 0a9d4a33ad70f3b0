"""Bringing dead letters back by what they have in common: the options, and how far it is."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable
from typing import Any

import click

from delayq.errors import DelayqError
from delayq.operations.bulk.redrive import Redrive, Redriven
from delayq.queue import Queue

from .options import AGE, PAIR, PATTERN, Function
from .output import note, plural, print_json, say
from .progress import progress

_FILTERS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (
        ("--older-than",),
        {"type": AGE, "metavar": "TIME", "help": "Died at least this long ago (1h, 30d), or before this time."},
    ),
    (("--newer-than",), {"type": AGE, "metavar": "TIME", "help": "Died within this time, or after this time."}),
    (("--error", "text"), {"metavar": "TEXT", "help": "The last error contains this text; case-sensitive."}),
    (
        ("--error-regex", "pattern"),
        {"type": PATTERN, "metavar": "REGEX", "help": "The last error matches this regular expression."},
    ),
    (("--reason",), {"metavar": "TEXT", "help": "Died for exactly this reason."}),
    (
        ("--header", "-H", "headers"),
        {"type": PAIR, "multiple": True, "metavar": "NAME=VALUE", "help": "Has this header; repeatable."},
    ),
)


def filter_options(function: Function) -> Function:
    """The filters; the function gets those given as the keywords of `DeadLetters.redrive` in `filters`."""

    @functools.wraps(function)
    def with_filters(*args: Any, text: str | None, pattern: re.Pattern[str] | None, **kwargs: Any) -> Any:
        if text is not None and pattern is not None:
            raise click.UsageError("--error and --error-regex were given: give one of them")
        known = {name: kwargs.pop(name) for name in ("older_than", "newer_than", "reason")}
        known |= {"error": pattern if text is None else text, "headers": dict(kwargs.pop("headers")) or None}
        given = {name: value for name, value in known.items() if value is not None}
        return function(*args, filters=given, **kwargs)

    decorated: Callable[..., Any] = with_filters
    for names, settings in reversed(_FILTERS):
        decorated = click.option(*names, **settings)(decorated)
    return decorated


def redrive(queue: Queue, work: Redrive, dry_run: bool, as_json: bool) -> None:
    """Run a redrive to its end, and tell what became of it; when it is interrupted, also how to go on."""
    with progress(f"{'looking at' if dry_run else 'requeueing'} {queue.name}", None) as bar:
        try:
            while not work.done:
                told = queue.execute(work.step)
                waiting = 0 if dry_run else told.matched - told.moved
                bar.reach(told.looked_at - waiting, told.total)
                time.sleep(work.pause)
        except (KeyboardInterrupt, DelayqError):
            bar.stop()
            if work.told.total and not dry_run:
                note(f"requeued {plural(work.told.moved, 'message')} until here; go on with {_rest(work.told)}")
            raise
    told = work.told
    if as_json:
        print_json({"matched": told.matched, "requeued": told.moved})
    elif dry_run:
        say(f"would requeue {plural(told.matched, 'message')}, of {told.total:,} dead")
    else:
        say(f"requeued {plural(told.moved, 'message')}")
    if not dry_run and told.moved < told.matched:
        note(f"left alone {told.matched - told.moved:,}: not dead any more, or the payload is gone")


def _rest(told: Redriven) -> str:
    """Return the bounds of what is left, which do not move on with the time."""
    after = f" --newer-than {told.after.isoformat(timespec='milliseconds')}" if told.after else ""
    return f"--older-than {told.up_to.isoformat(timespec='milliseconds')}{after}"
