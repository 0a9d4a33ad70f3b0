"""The frames of `delayq top`: the list of queues, the details of one, the topics, and the keys."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from delayq.model.consumer_info import ConsumerInfo
from delayq.model.health import lag_text
from delayq.model.queue_stats import QueueStats, quantile
from delayq.model.show import plural, show_duration, show_moment
from delayq.model.text import printable, printable_id
from delayq.model.totals import totals

from ..formats import tasks_text
from ..output import shortened
from ..upcoming import sparkline
from .columns import COLUMNS, GAP, LEAST_NAME, LEFT, STYLES, cell, limits, names, next_due, rate, show_bound, that_fit
from .snapshot import QueueRow, TopicRow
from .state import HELP_LINE, KEYS, TopView

MOST_TROUBLE_LINES = 3  # of the selected queue, below the list
LEAST_DETAILS = 14  # free lines below the list that are needed to show the selected queue's details there
TOPIC_FIGURES = 64  # characters that the figures of a topic take
HISTOGRAM = " ▁▂▃▄▅▆▇█"


def frame(view: TopView, above: str, errors: str, width: int, height: int) -> Any:
    """Return a frame.

    Args:
        above: the first line.
        errors: what could not be read.
    """
    from rich.console import Group  # noqa: PLC0415  # only a terminal needs it

    top, last = [_line(above, "dim")], [_line(printable(errors), "dim"), _below(view, width)]
    room = height - len(top) - len(last)
    if view.page == "help":
        help_lines = [line for key, what in KEYS.items() for line in _wrapped(f"{key:>8}  {what}", width, 10)]
        return Group(*top, *map(_line, help_lines), _line("press any key to go back", "dim"))
    if view.page == "topics":
        lines = _of_topics(view.topics, width, max(1, room - 2))
    elif view.page == "queue" and view.pulse is not None:
        lines = _of_one(view.pulse, width, room)
    else:
        lines = _of_all(view, width, room)
    return Group(*top, *lines, *last)


def totals_lines(rows: Sequence[QueueRow], width: int) -> list[str]:
    """Return the totals of queues, on as many lines as they need."""
    sums = totals(each.figures for each in rows)
    per_second = [(sums.sent, "sent"), (sums.acked, "acked"), (sums.failed, "failed")]
    parts = [
        *(f"{rate(each)} {name}/s" for each, name in per_second),
        f"overdue {show_duration(sums.overdue) if sums.overdue else '-'}",
        f"{sums.dead:,} dead",
        plural(sums.consumers, "consumer"),
        f"{sums.in_trouble:,} in trouble",
    ]
    lines = [parts[0]]
    for part in parts[1:]:
        fits = len(lines[-1]) + 2 + len(part) <= width
        lines[-1:] = [f"{lines[-1]}  {part}"] if fits else [lines[-1], part]
    return lines


def table(pulses: Sequence[QueueRow], width: int, view: TopView | None = None) -> Any:
    """Return a table of queues, one per line, with as many columns as fit.

    Args:
        view: has the selected queue and the sort order; None for a table that is only printed.
    """
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    sort = view.sort if view else ""
    columns = that_fit(pulses, width, sort)
    drawn = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name in columns:
        header = Text(f"{name}{_arrow(view)}", "reverse") if view and name == sort else Text(name)
        drawn.add_column(header, justify="left" if name in LEFT else "right", no_wrap=True, overflow="ellipsis")
    selected = view.pulse if view else None
    for pulse, queue in zip(pulses, names(pulses, columns, width, sort), strict=True):
        values = [queue, *(cell(name, pulse, width) for name in columns[1:])]
        cells = (Text(each, style=STYLES.get(name, "")) for name, each in zip(columns, values, strict=True))
        style = "reverse" if pulse is selected else "dim" if pulse.stats.paused_since else ""
        drawn.add_row(*cells, style=style)
    return drawn


def _arrow(view: TopView) -> str:
    return "▼" if view.is_reversed is COLUMNS[view.sort].is_text else "▲"


def _of_all(view: TopView, width: int, room: int) -> list[Any]:
    """Return the totals, the list, and the details of the selected queue if there is room."""
    pulse = view.pulse
    above = [_line(each) for each in totals_lines(view.shown, width)]
    said = f"{pulse.queue}: {' '.join(each.text for each in pulse.troubles)}" if pulse and pulse.troubles else ""
    troubles = _wrapped(printable(said), width)[:MOST_TROUBLE_LINES] or [""]  # keep one line for them
    rows = max(1, room - len(above) - 1 - len(troubles) - 1)  # the header, and the number of hidden queues
    first = max(0, min(view.selected - rows // 2, len(view.shown) - rows))
    hidden = len(view.shown) - rows
    lines = [*above, table(view.shown[first : first + rows], width, view)]
    left = rows - len(view.shown)
    if pulse is not None and left >= LEAST_DETAILS:
        return [*lines, _line(""), *_of_one(pulse, width, left + len(troubles))]
    more = _line(f"{hidden} more (↑ ↓ to scroll)" if hidden > 0 else "", "dim")
    return [*lines, more, *(_line(each, "bold red") for each in troubles)]


def _of_topics(rows: Sequence[TopicRow], width: int, room: int) -> list[Any]:
    """Return the lines of the topics, those with the most work left first."""
    from rich.table import Table  # noqa: PLC0415

    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("topic", "records", "groups", "consumers", "unacked", "lag", "dead"):
        drawn.add_column(name, justify="left" if name == "topic" else "right", no_wrap=True)
    for each in sorted(rows, key=lambda row: (-row.left, row.name))[:room]:
        numbers = [sum(getattr(group, name) for group in each.groups) for name in ("consumers", "unacked")]
        dead = sum(group.dead for group in each.groups)
        cells = [f"{each.records:,}", str(len(each.groups)), *(f"{number:,}" for number in numbers)]
        name = shortened(printable(each.name), max(LEAST_NAME, width - TOPIC_FIGURES))
        drawn.add_row(name, *cells, lag_text(each.groups), f"{dead:,}")
    left_out = len(rows) - room
    return [
        drawn,
        _line(f"{left_out} more with less work left" if left_out > 0 else "" if rows else "no topics", "dim"),
    ]


def _below(view: TopView, width: int) -> Any:
    if view.to_confirm is not None:
        verb = "resume" if view.to_confirm.stats.paused_since else "pause"
        return _line(f"{verb} {printable(view.to_confirm.queue)}? y to confirm, any other key to cancel", "bold")
    if view.is_typing:
        return _line(f"/{printable(view.filter)}█")
    filtered = f"/{printable(view.filter)}  Esc shows all  {HELP_LINE}"
    if view.filter and len(filtered) > width:
        filtered = f"/{printable(view.filter)}  Esc shows all  ? help  q quits"
    return _line(filtered if view.filter else HELP_LINE, "dim")


def _of_one(pulse: QueueRow, width: int, room: int) -> list[Any]:
    """Return the details of a queue; without room for all lines, its last consumers are cut."""
    stats, rates = pulse.stats, pulse.rates
    lines = [_line(printable(pulse.queue), "bold")]
    troubles = [line for each in pulse.troubles for line in _wrapped(each.text, width)]
    lines += [_line(each, "bold red") for each in troubles] or [_line("No trouble.", "green")]
    per_second = [(name, rate(getattr(rates, name, None))) for name in ("sent", "delivered", "acked", "failed")]
    oldest = "-" if pulse.oldest_due is None else f"for {show_duration(pulse.oldest_due)}"
    fields = [
        ("messages", ", ".join(f"{getattr(stats, name):,} {name}" for name in QueueStats.PHASES)),
        ("in Redis", ", ".join(f"{count:,} {state}" for state, count in stats.states().items())),
        ("per second", ", ".join(f"{value} {name}" for name, value in per_second)),
        ("lateness", _spread(stats.lateness, rates.lateness if rates else {})),
        ("handlers", _spread(stats.handler_time, rates.handler_time if rates else {})),
        *([("tasks", tasks_text(stats.tasks))] if stats.tasks else []),
        ("limits", limits(pulse.usage)),
        ("next due", next_due(pulse)),
        ("overdue", oldest),
        ("upcoming", f"{sparkline(pulse.upcoming)}  {sum(each.count for each in pulse.upcoming):,} in total"),
        ("consumers", f"{pulse.alive} of {len(pulse.consumers)} alive"),
    ]
    lines += [_line(line) for name, value in fields for line in _wrapped(f"{name:<10} {value}", width, 11)]
    for each in pulse.consumers:
        value = _wrapped(printable(_of_consumer(each)), width, 4)
        lines += [_line(line, "" if each.is_alive else "dim") for line in value]
    return lines[: max(1, room)]


def _of_consumer(each: ConsumerInfo) -> str:
    place = f"{printable_id(each.name)} on {each.host}, pid {each.pid}, delayq {each.version}"
    held = f"holds {each.holds_count:,}"
    if each.holds:
        first = each.holds[0]
        held += f", since {show_moment(first.since, each.at)} {first.id}"
    seen = f"seen {show_moment(each.seen_at, each.at)}"
    if each.receives:
        return f"  {place}: receives; {seen}"
    return f"  {place}: {each.handled:,} handled, {each.failed:,} failed, {held}; {seen}"


def _spread(counts: Mapping[int, int], lately: Mapping[int, int]) -> str:
    """Show a histogram since the queue was created, one character per power of two, and the latest quantiles."""
    if not counts:
        return "-"
    powers = range(max(counts).bit_length())
    highest = max(counts.values())
    bars = "".join(HISTOGRAM[-(-8 * counts.get(2**power, 0) // highest)] for power in powers)
    half, most = (show_bound(quantile(lately, share)) for share in (0.5, 0.99))
    return f"▏{bars}▏ 1ms to {show_duration(max(counts) / 1000)}; now half {half}, 99 % {most}"


def _wrapped(text: str, width: int, indent: int = 0) -> list[str]:
    """Return a text as lines of at most `width` characters, broken between words."""
    return textwrap.wrap(text, max(width, 2 * indent + 1), subsequent_indent=" " * indent)


def _line(text: str, style: str = "") -> Any:
    from rich.text import Text  # noqa: PLC0415

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")
