"""How much falls due when: the options and the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import click
import msgspec

from delayq.model.queue_stats import Upcoming

from .formats import show_moment
from .options import DURATION, Decorator
from .output import note, print_json, print_table

BAR = 30  # characters
STEPS = " ▁▂▃▄▅▆▇█"

Foreseen: TypeAlias = Sequence[tuple[str, Sequence[Upcoming]]]
"""Queues' names and their buckets."""


def window_option(default: str | None, means: str = "") -> Decorator:
    """--window."""
    return click.option(
        "--window",
        type=DURATION,
        metavar="TIME",
        default=default,
        help=f"How far ahead to look.{means}",
    )


def bucket_option(default: str | None, means: str = "") -> Decorator:
    """--bucket."""
    return click.option(
        "--bucket",
        type=DURATION,
        metavar="TIME",
        default=default,
        help=f"The length of a step; at most 500 steps.{means}",
    )


def print_upcoming(foreseen: Foreseen, long: bool, as_json: bool) -> None:
    """Print what falls due, one line per bucket; for several queues, only buckets that are not empty."""
    if as_json:
        for name, buckets in foreseen:
            for bucket in buckets:
                print_json({"queue": name} | msgspec.structs.asdict(bucket))
        return
    most = max((bucket.count for _, buckets in foreseen for bucket in buckets), default=0)
    alone = len(foreseen) == 1
    rows = [
        [*([] if alone else [name]), show_moment(each.ends_at, long), each.pending, each.retry, _bar(each.count, most)]
        for name, buckets in foreseen
        for each in buckets
        if alone or each.count
    ]
    if rows:
        print_table([*([] if alone else ["queue"]), "due before", "#new", "#retries", ""], rows)
    else:
        note("nothing falls due in this time")


def sparkline(buckets: Sequence[Upcoming]) -> str:
    """Return a bar chart with one character per bucket."""
    most = max((bucket.count for bucket in buckets), default=0)
    return "".join(STEPS[-(-bucket.count * (len(STEPS) - 1) // (most or 1))] for bucket in buckets)


def _bar(count: int, most: int) -> Any:
    return "█" * -(-count * BAR // (most or 1))
