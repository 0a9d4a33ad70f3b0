"""Where `delayq top` draws: a terminal that shows one frame after the other, and hears a key."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from .durations import show_duration
from .output import printable, shortened
from .pulse import Pulse
from .upcoming import sparkline

LEAST_NAME = 12  # characters of a queue's name; a fifth of the line, where that is more
GAP = 1  # between columns
HEAD = 4  # lines above and below the queues

Draw = Callable[[Sequence[Pulse], str, str], None]
Wait = Callable[[float], str]


@contextmanager
def screen() -> Generator[tuple[Draw, Wait]]:
    """Yield a function that draws queues between two lines, and one that waits for a key, "" when none comes.

    The terminal is as it was when it ends, also by SIGTERM.
    """
    from rich.console import Console  # noqa: PLC0415  # only a terminal needs it
    from rich.live import Live  # noqa: PLC0415

    console = Console()
    live = Live(console=console, screen=True, auto_refresh=False)

    def draw(pulses: Sequence[Pulse], above: str, below: str) -> None:
        live.update(_frame(pulses, above, below, console.width, console.height), refresh=True)

    with _heard() as wait, _ended_by_signal(), live:
        yield draw, wait


def _ended(*_: Any) -> NoReturn:
    sys.exit(128 + signal.SIGTERM)


@contextmanager
def _ended_by_signal() -> Generator[None]:
    before = signal.signal(signal.SIGTERM, _ended)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _heard() -> Generator[Wait]:
    """Yield a function that waits so many seconds for a key, and returns it."""
    if not sys.stdin.isatty():
        yield lambda seconds: _key([], seconds)
        return
    keyboard = sys.stdin.fileno()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    try:
        yield lambda seconds: _key([keyboard], seconds)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _key(keyboards: list[int], seconds: float) -> str:
    ready, _, _ = select.select(keyboards, [], [], seconds)
    return os.read(ready[0], 1).decode(errors="replace") if ready else ""


def table(pulses: Sequence[Pulse], width: int) -> Any:
    """Return queues as a table, a line each, of as many columns as fit."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    columns = _that_fit(pulses, width)
    shown = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for name in columns:
        shown.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True, overflow="ellipsis")
    for pulse in pulses:
        cells = (Text(_cell(name, pulse, width), style=STYLES.get(name, "")) for name in columns)
        shown.add_row(*cells, style="dim" if pulse.stats.paused_since else "")
    return shown


def _that_fit(pulses: Sequence[Pulse], width: int) -> list[str]:
    """Return the names of the columns that fit, in their order; those that matter least go first."""
    wide = {name: max([len(name), *(len(_cell(name, pulse, width)) for pulse in pulses)]) + GAP for name in COLUMNS}
    chosen = list(COLUMNS)
    for name in LEAST:
        if sum(wide[each] for each in chosen) <= width:
            break
        chosen.remove(name)
    return chosen


def _cell(name: str, pulse: Pulse, width: int) -> str:
    return shortened(COLUMNS[name](pulse), max(LEAST_NAME, width // 5) if name == "queue" else None)


def _frame(pulses: Sequence[Pulse], above: str, below: str, width: int, height: int) -> Any:
    from rich.console import Group  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    room = max(1, height - HEAD)
    left = len(pulses) - room
    more = f"{left} more: name those that you want to see" if left > 0 else ""
    lines = [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in (above, more, printable(below))]
    return Group(lines[0], table(pulses[:room], width), *lines[1:])


def _count(name: str) -> Callable[[Pulse], str]:
    return lambda pulse: f"{getattr(pulse.stats, name):,}"


def _rate(name: str) -> Callable[[Pulse], str]:
    def show(pulse: Pulse) -> str:
        rate = getattr(pulse, name)
        return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"

    return show


def _late(name: str) -> Callable[[Pulse], str]:
    def show(pulse: Pulse) -> str:
        seconds = getattr(pulse, name)
        return "-" if seconds is None else f"<{show_duration(seconds)}"

    return show


def _next(pulse: Pulse) -> str:
    if pulse.stats.paused_since:
        return "paused"
    due, now = pulse.stats.next_due_at, pulse.upcoming[0].starts_at
    if due is None:
        return "-"
    return f"in {show_duration((due - now).total_seconds())}" if due > now else "now"


COLUMNS: dict[str, Callable[[Pulse], str]] = {
    "queue": lambda pulse: printable(pulse.queue),
    "pending": _count("pending"),
    "ready": _count("ready"),
    "unack": _count("unack"),
    "retry": _count("retry"),
    "dead": _count("dead"),
    "sent/s": _rate("sent"),
    "acked/s": _rate("acked"),
    "failed/s": _rate("failed"),
    "late 50%": _late("late_half"),
    "late 99%": _late("late_most"),
    "next due": _next,
    "upcoming": lambda pulse: sparkline(pulse.upcoming),
}
LEFT = {"queue", "next due", "upcoming"}
LEAST = ("late 50%", "sent/s", "upcoming", "next due", "failed/s", "late 99%", "retry", "unack", "acked/s", "ready")
STYLES = {
    "pending": "cyan",
    "ready": "blue",
    "unack": "yellow",
    "retry": "magenta",
    "dead": "red",
    "acked/s": "green",
    "upcoming": "cyan",
}
