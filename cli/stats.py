"""stats: how many messages a queue holds, and how many it has handled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import click
import msgspec

from delayq.errors import DelayqError
from delayq.model.configuration import Configuration
from delayq.model.queue_stats import QueueStats, check_buckets
from delayq.model.show import show_duration

from . import candidates
from .configure import fields_of
from .connection import ServerOptions
from .formats import show_moment, tasks_text
from .options import command, json_option, long_option, server_options
from .output import (
    note,
    print_fields,
    print_json,
    print_table,
    say,
)
from .topic.counts import of_all_topics, print_topic, print_topics, topic_counts, topic_record
from .upcoming import bucket_option, print_upcoming, window_option
from .watch import again, watch_option

T = TypeVar("T")

LEFT = ("acked", "cancelled", "expired", "purged")
OTHER_COUNTERS = tuple(name for name in QueueStats.COUNTERS if name not in ("sent", *LEFT))


@command(
    """
    delayq send emails hello --delay 1h
    delayq stats emails
    """,
    "Count the messages of a queue, or of all queues.",
)
@click.argument("name", metavar="[QUEUE|TOPIC]", required=False, shell_complete=candidates.queues)
@click.option("--upcoming", is_flag=True, help="Count messages by when they fall due instead.")
@window_option(None, "  [default: 1h]")
@bucket_option(None, "  [default: 5m]")
@watch_option
@long_option
@server_options
@json_option
def stats(
    server: ServerOptions,
    name: str | None,
    upcoming: bool,
    window: float | None,
    bucket: float | None,
    watch: float | None,
    long: bool,
    as_json: bool,
) -> int | None:
    """Count the messages of QUEUE, the records of TOPIC, or all. Exit code 1 if one of them cannot be read.

    With --upcoming, count the messages and retries that fall due within the next hour, in steps of five minutes;
    the first step includes those already due.
    """
    if not upcoming and (window is not None or bucket is not None):
        raise click.UsageError("--window and --bucket need --upcoming")
    show = partial(_stats, server, name, long, as_json)
    if upcoming:
        span, step = 3600 if window is None else window, 300 if bucket is None else bucket
        show = partial(_upcoming, server, name, span, step, long, as_json)
    return show() if watch is None else again(watch, show)


def _stats(server: ServerOptions, name: str | None, long: bool, as_json: bool) -> int:
    if name is None:
        return _all_stats(server, long, as_json)
    queue = server.queue(name)
    counts, limits = queue.stats(), queue.configuration()
    if not (counts.sent or server.has("queue", name)) and server.has("topic", name):
        print_json(topic_record(topic_counts(server, name))) if as_json else print_topic(topic_counts(server, name))
    elif as_json:
        stored = {name: value for name, value in msgspec.structs.asdict(limits).items() if value is not None}
        print_json(stats_record(counts) | stored)
    else:
        if not counts.sent:
            note(f"nothing was ever sent to queue {name}")
        _one_stats(counts, limits)
    return 0


def _upcoming(server: ServerOptions, name: str | None, window: float, bucket: float, long: bool, as_json: bool) -> int:
    check_buckets(window, bucket)
    if name is not None:
        print_upcoming([(name, server.queue(name).upcoming(window, bucket))], long, as_json)
        return 0
    names = server.queue_names()
    found, failed = _readable(names, server.upcoming_of(names, window, bucket))
    print_upcoming(found, long, as_json)
    return failed


def _readable(names: Sequence[str], found: Sequence[T | DelayqError]) -> tuple[list[tuple[str, T]], int]:
    """Return what was read of each queue, and the exit code: 1 if one of them could not be read."""
    read: list[tuple[str, T]] = []
    failed = 0
    for name, each in zip(names, found, strict=True):
        if isinstance(each, DelayqError):  # such as a queue of a newer delayq: the others are still printed
            note(f"{name}: {each}")
            failed = 1
        else:
            read.append((name, each))
    return read, failed


def stats_record(counts: QueueStats) -> dict[str, Any]:
    """Return the counts of a queue for printing as JSON."""
    record = {name: getattr(counts, name) for name in counts.__struct_fields__}
    return record | {"running": counts.running, "inside": counts.inside, "missing": counts.missing}


def _all_stats(server: ServerOptions, long: bool, as_json: bool) -> int:
    names = server.names()
    found, failed = _readable(names["queue"], server.stats_of(names["queue"]))
    counts = [each for _, each in found]
    topics, refused = of_all_topics(server, names["topic"])
    if as_json:
        for record in [*map(stats_record, counts), *map(topic_record, topics)]:
            print_json(record)
        return failed | refused
    if not (counts or topics or failed or refused):
        note("no queues")
    if counts:
        columns = ["queue", *(f"#{name}" for name in (*QueueStats.PHASES, "sent", "acked"))]
        rows = [[getattr(each, column.lstrip("#")) for column in columns] + [_condition(each, long)] for each in counts]
        print_table([*columns, ""], rows)
    if counts and topics:
        say("")
    if topics:
        print_topics(topics)
    return failed | refused


def _condition(counts: QueueStats, long: bool) -> str:
    if counts.paused_until:
        return f"paused, resumes {show_moment(counts.paused_until, long)}"
    if counts.paused_since:
        return "paused"
    return " ".join(_next_due(counts, long))


def _next_due(counts: QueueStats, long: bool = True) -> tuple[str, str] | tuple[()]:
    """Say since when a message is overdue, or when the next one falls due."""
    if counts.oldest_due_at:
        return "overdue since", show_moment(counts.oldest_due_at, long)
    return ("next due", show_moment(counts.next_due_at, long)) if counts.next_due_at else ()


def _one_stats(counts: QueueStats, limits: Configuration) -> None:
    others = [name for name in OTHER_COUNTERS if name != "held_back" or counts.held_back]
    due = _next_due(counts)
    print_fields(
        [
            ("queue", counts.queue),
            ("paused since", counts.paused_since and show_moment(counts.paused_since)),
            ("paused until", counts.paused_until and show_moment(counts.paused_until)),
            *fields_of(limits),
            *((name, f"{getattr(counts, name):,}") for name in QueueStats.PHASES),
            *([due] if due else []),
            ("in Redis", ", ".join(f"{count:,} {name}" for name, count in counts.states().items())),
            ("balance", balance(counts)),
            *((name, f"{getattr(counts, name):,}") for name in others),
            ("slots missed", f"{counts.slots_missed:,}" if counts.slots_missed else None),
            ("tasks", tasks_text(counts.tasks) if counts.tasks else None),
            ("lateness", _quantiles(counts.lateness_quantile) if counts.lateness else None),
            ("handler time", _quantiles(counts.handler_time_quantile) if counts.handler_time else None),
        ]
    )


def _quantiles(quantile: Callable[[float], float | None]) -> str:
    return ", ".join(f"{share:.0%} under {show_duration(quantile(share) or 0)}" for share in (0.5, 0.99, 1))


def balance(counts: QueueStats) -> str:
    """Return the equation that must hold: sent = left + inside."""
    names = LEFT + (("adjusted",) if counts.adjusted else ())
    left = " + ".join(f"{getattr(counts, name):,} {name}" for name in names)
    missing = f"; {counts.missing:,} MISSING: run delayq doctor {counts.queue}" if counts.missing else ""
    return f"{counts.sent:,} sent = {left} + {counts.inside:,} inside{missing}"
