"""The display of ``delayq demo``: a live table on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Self

import click

from delayq.model.queue_stats import QueueStats

STATES = {
    "pending": ("cyan", "not due yet"),
    "ready": ("blue", "due, waiting for a worker"),
    "unack": ("yellow", "being handled"),
    "retry": ("magenta", "failed, waiting for the next attempt"),
    "dead": ("red", "out of retries"),
    "acked": ("green", "done"),
    "cancelled": ("white", "withdrawn in time"),
    "expired": ("white", "not started in time"),
}
NEWS = 8  # lines
FRAMES = 15  # a second


class DemoView(ABC):
    """What the user sees. Any thread may use it."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begin

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @abstractmethod
    def say(self, text: str) -> None:
        """Show an event."""

    @abstractmethod
    def update(self, counts: QueueStats) -> None:
        """Show where the messages are."""


class PlainView(DemoView):
    """Lines: every event, and the counts once a second."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0.0
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        with self._lock:
            click.echo(f"{self.seconds:5.2f}s  {text}")

    def update(self, counts: QueueStats) -> None:
        if self.seconds >= self._next:
            self._next += 1.0
            self.say("· " + "  ".join(f"{name} {getattr(counts, name)}" for name in STATES))


class LiveView(DemoView):
    """A table of the states with one dot per message, and the latest events below."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console  # noqa: PLC0415  # only a terminal needs it
        from rich.live import Live  # noqa: PLC0415

        self._news: deque[str] = deque(maxlen=NEWS)
        self._counts = QueueStats(queue="")
        self._lock = threading.Lock()
        self._live = Live(console=Console(), get_renderable=self._render, refresh_per_second=FRAMES)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        with self._lock:
            self._news.append(f"{self.seconds:5.2f}s  {text}")

    def update(self, counts: QueueStats) -> None:
        self._counts = counts

    def _render(self) -> Any:
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, padding=(0, 1), show_header=False, title_justify="left", title=f"{self.seconds:4.1f}s")
        for name, (colour, meaning) in STATES.items():
            count = getattr(self._counts, name)
            table.add_row(name, str(count), Text("●" * count or meaning, style=colour if count else "dim"))
        with self._lock:
            news = list(self._news)
        lines = Text("\n".join(news + [""] * (NEWS - len(news))), style="dim", no_wrap=True, overflow="ellipsis")
        whole = Table.grid()
        whole.add_row(table)
        whole.add_row("")
        whole.add_row(lines)
        return whole


def stage() -> DemoView:
    """Return the view that fits stdout."""
    return LiveView() if sys.stdout.isatty() else PlainView()
