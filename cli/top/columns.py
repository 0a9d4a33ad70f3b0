"""The columns of `delayq top`: what each shows, and how it sorts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from delayq.model.configuration import Usage
from delayq.model.show import or_dash, show_away, show_duration, show_per_second
from delayq.model.text import printable

from ..output import shortened
from ..upcoming import sparkline
from .snapshot import QueueRow

LEAST_NAME = 12  # minimum width of a queue's name; a fifth of the line if that is more
WIDE_LINE = 120  # characters: from this width on, all troubles of a queue are shown
GAP = 1  # between columns


class Column(NamedTuple):
    """What a column shows of a queue, and its sort key: None is last."""

    show: Callable[[QueueRow], str]
    rank: Callable[[QueueRow], Any]
    is_text: bool = False


def that_fit(pulses: Sequence[QueueRow], width: int, keep: str = "") -> list[str]:
    """Return the names of the columns that fit, in order; the least important are dropped first, except `keep`."""
    wide = {name: max([len(name) + 1, *(len(cell(name, pulse, width)) for pulse in pulses)]) + GAP for name in COLUMNS}
    chosen = list(COLUMNS)
    for name in LEAST:
        if sum(wide[each] for each in chosen) <= width:
            break
        if name != keep:
            chosen.remove(name)
    return chosen


def cell(name: str, pulse: QueueRow, width: int) -> str:
    """Return what a column shows of a queue on a line of `width` characters."""
    if name == "trouble" and width < WIDE_LINE and len(pulse.troubles) > 1:
        return f"{pulse.troubles[0].code} +{len(pulse.troubles) - 1}"
    return shortened(COLUMNS[name].show(pulse), max(LEAST_NAME, width // 5) if name == "queue" else None)


def names(pulses: Sequence[QueueRow], columns: Sequence[str], width: int, sort: str) -> list[str]:
    """Return the names of queues for the first column, cut to the room that the other columns leave."""
    heads = {name: len(name) + (name == sort) for name in columns[1:]}
    wide = [max([head, *(len(cell(name, each, width)) for each in pulses)]) for name, head in heads.items()]
    room = max(LEAST_NAME, width - sum(wide) - GAP * len(columns), width // 5)
    return [shortened(COLUMNS["queue"].show(each), room) for each in pulses]


def ordered(pulses: Iterable[QueueRow], name: str, is_reversed: bool) -> list[QueueRow]:
    """Return queues sorted by a column: texts ascending, numbers descending, and queues without a value last."""
    column = COLUMNS[name]
    by_name = sorted(pulses, key=lambda each: each.queue)
    known = [each for each in by_name if column.rank(each) is not None]
    known.sort(key=column.rank, reverse=is_reversed is column.is_text)
    return known + [each for each in by_name if column.rank(each) is None]


rate = or_dash(show_per_second, "-")
show_bound = or_dash(lambda seconds: f"<{show_duration(seconds)}", "-")
"""Show an upper bound of a duration."""


def next_due(pulse: QueueRow) -> str:
    """Show when the next message falls due."""
    if pulse.stats.paused_until:
        return f"paused, resumes {show_away(pulse.stats.paused_until, pulse.stats.at)}"
    if pulse.stats.paused_since:
        return "paused"
    due = pulse.stats.next_due_at
    if due is None:
        return "-"
    return show_away(due, pulse.stats.at) if due > pulse.stats.at else "now"


def _until_next(pulse: QueueRow) -> float | None:
    due = pulse.stats.next_due_at
    return None if due is None else (due - pulse.stats.at).total_seconds()


def _count(name: str) -> Column:
    return Column(lambda pulse: f"{getattr(pulse.stats, name):,}", lambda pulse: getattr(pulse.stats, name))


def _rate(name: str) -> Column:
    return Column(lambda pulse: rate(_of_rates(name)(pulse)), _of_rates(name))


def _quantile(name: str) -> Column:
    return Column(lambda pulse: show_bound(_of_rates(name)(pulse)), _of_rates(name))


def _of_rates(name: str) -> Callable[[QueueRow], float | None]:
    return lambda pulse: getattr(pulse.rates, name, None)


def _age(pulse: QueueRow) -> str:
    return or_dash(show_duration, "-")(pulse.oldest_due)


def limits(usage: Usage) -> str:
    """Show how much of its limits a queue uses, such as ``run 3/5 rate 90/100 key waits 7``; ``-`` without limits."""
    parts = [
        f"run {usage.running}/{usage.concurrency}" if usage.concurrency else "",
        f"rate {usage.handed_out}/{usage.rate}" if usage.rate else "",
        f"key waits {usage.key_waiting}" if usage.per_key else "",
    ]
    return " ".join(filter(None, parts)) or "-"


def _limit(pulse: QueueRow) -> float | None:
    usage = pulse.usage
    shares = [usage.running / usage.concurrency] if usage.concurrency else []
    shares += [usage.handed_out / usage.rate] if usage.rate else []
    return max(shares, default=None)


def _trouble(pulse: QueueRow) -> str:
    return ", ".join(each.code for each in pulse.troubles)


COLUMNS: dict[str, Column] = {
    "queue": Column(lambda pulse: printable(pulse.queue), lambda pulse: pulse.queue, is_text=True),
    "scheduled": _count("scheduled"),
    "due": _count("due"),
    "running": _count("running"),
    "retrying": _count("retrying"),
    "dead": _count("dead"),
    "sent/s": _rate("sent"),
    "acked/s": _rate("acked"),
    "failed/s": _rate("failed"),
    "late 50%": _quantile("lateness_p50"),
    "late 99%": _quantile("lateness_p99"),
    "ran 99%": _quantile("handler_time_p99"),
    "overdue": Column(_age, lambda pulse: pulse.oldest_due),
    "cons": Column(lambda pulse: f"{pulse.alive:,}", lambda pulse: pulse.alive),
    "limits": Column(lambda pulse: limits(pulse.usage), _limit, is_text=True),
    "next due": Column(next_due, _until_next, is_text=True),
    "upcoming": Column(
        lambda pulse: sparkline(pulse.upcoming), lambda pulse: sum(each.count for each in pulse.upcoming)
    ),
    "trouble": Column(_trouble, lambda pulse: len(pulse.troubles)),
}
LEFT = {"queue", "limits", "next due", "upcoming", "trouble"}
LEAST = (
    *(
        "late 50%",
        "sent/s",
        "upcoming",
        "limits",
        "next due",
        "ran 99%",
        "failed/s",
        "late 99%",
        "overdue",
        "retrying",
        "running",
    ),
    *("acked/s", "cons", "due", "trouble"),
)
STYLES = {
    "scheduled": "cyan",
    "due": "blue",
    "running": "yellow",
    "retrying": "magenta",
    "dead": "red",
    "acked/s": "green",
    "upcoming": "cyan",
    "trouble": "bold red",
}
