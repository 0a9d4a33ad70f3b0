"""``--watch``: repeat a command until Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from .options import DURATION, Decorator

LEAST_SECONDS, MOST_SECONDS = 0.1, 3600.0

watch_option: Decorator = click.option(
    "--watch",
    type=DURATION,
    metavar="[TIME]",
    is_flag=False,
    flag_value="2s",
    help="Repeat every 2s, or as in --watch=10s, until Ctrl-C.",
)


def again(seconds: float, show: Callable[[], int | None]) -> int:
    """Call a function at an interval until Ctrl-C; return the highest exit code of its calls.

    On a terminal, clear the screen before each call.

    Raises:
        click.UsageError: the time is out of range.
    """
    if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
        raise click.UsageError("--watch must be between 100ms and 1h")
    code = 0
    try:
        while True:
            if sys.stdout.isatty():
                click.clear()
            code = max(code, show() or 0)
            sys.stdout.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return code
