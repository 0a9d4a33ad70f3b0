"""Tables whose rows become messages: the options and the output of the jobs that take one."""

from __future__ import annotations

import datetime as dt
import functools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import click
import msgspec

from delayq.lake.shown_path import shown
from delayq.model.show import plural, show_moment
from delayq.spark.jobs.preview import Preview
from delayq.spark.writing.rows import FORMATS

from ..options import PAIR, Function, added, delay_option
from ..output import note, print_json, print_table, say

BAR = 40  # characters
MOST_LINES = 50  # two days by hours; more than a month by days

ASIDE = "--rejects FOLDER"
"""The option for rows that cannot be sent, as errors name it."""

OPTIONS = added(
    click.argument("table"),
    click.option(
        "--map",
        "columns",
        multiple=True,
        type=PAIR,
        metavar="COLUMN=SQL",
        help="Compute payload, due_at, delay, id, headers, max_retries, expires_at or timeout with this Spark "
        "SQL; repeatable. Default: the table's columns of these names.",
    ),
    delay_option,
    click.option(
        "--format",
        "table_format",
        metavar="NAME",
        help="parquet, csv, json, orc or table. Default: from the file name.",
    ),
    click.option(
        "--option",
        "options",
        multiple=True,
        type=PAIR,
        metavar="KEY=VALUE",
        help="An option of the format, such as sep=';'; repeatable.",
    ),
    click.option(
        "--payload-format",
        type=click.Choice(FORMATS),
        default="text",
        help="What a string payload is.",
    ),
    click.option("--run", metavar="NAME", help="A name for this run; another run with this name sends no row twice."),
    click.option(
        "--rejects",
        metavar="FOLDER",
        help="Write rows that cannot be sent to this folder, with the reason, and continue.",
    ),
    click.option("--dry-run", is_flag=True, help="Change nothing; print what would be sent, and when."),
)


def table_options(function: Function) -> Function:
    """TABLE and its options; the function gets some as `source`, arguments of the jobs, and the others by name."""

    @functools.wraps(function)
    def with_source(*args: Any, columns: Any, options: Any, **kwargs: Any) -> Any:
        source = {name: kwargs.pop(name) for name in ("delay", "table_format", "payload_format")}
        source |= {"columns": dict(columns), "options": dict(options)}
        return function(*args, source=source, **kwargs)

    return OPTIONS(with_source)


def tell_preview(found: Preview, as_json: bool) -> None:
    """Print the result of a dry run."""
    if as_json:
        hours = {at.isoformat(): count for at, count in found.hours.items()}
        print_json(msgspec.structs.asdict(found) | {"hours": hours})
        return
    say(f"would send {plural(found.sendable, 'message')}; cannot send {found.refused:,}")
    for reason, count in found.reasons.items():
        say(f"  {count:,} × {reason}")
    if found.earliest is not None and found.latest is not None:
        say(f"due from {show_moment(found.earliest)} to {show_moment(found.latest)}")
        unit, counts = _divided(found.hours)
        most = max(counts.values())
        rows = [(at, count, "█" * round(BAR * count / most)) for at, count in counts.items()]
        print_table([f"{unit} (UTC)", "#messages", ""], rows)


def _divided(hours: Mapping[dt.datetime, int]) -> tuple[str, dict[str, int]]:
    """Return a unit of time in which a table of counts has few lines, and the counts."""
    forms = {"hour": "%Y-%m-%d %H:00", "day": "%Y-%m-%d", "month": "%Y-%m"}
    unit = next(
        (each for each, form in forms.items() if len({at.strftime(form) for at in hours}) <= MOST_LINES), "month"
    )
    counts: Counter[str] = Counter()
    for at, count in hours.items():
        counts[at.strftime(forms[unit])] += count
    return unit, counts


def tell_rejected(count: int, rejects: str | None, as_json: bool) -> int:
    """Print how many rows were rejected, unless as JSON, which has their number; return the exit code."""
    if rejects and count and not as_json:
        note(f"rejected {plural(count, 'row')} that cannot be sent: see {shown(rejects)}")
    return 1 if count else 0
