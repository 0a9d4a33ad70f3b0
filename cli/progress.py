"""A progress bar for work that takes longer than a second: on stderr, if it is a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from delayq.model.text import printable

PATIENCE = 1.0  # seconds before the bar appears


@contextmanager
def progress(label: str, total: float | None) -> Generator[ProgressBar]:
    """Show the progress that the block reports to the bar.

    Args:
        total: the total amount, or None if it is unknown.
    """
    bar = ProgressBar(label, total, shown=sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.stop()


class ProgressBar:
    """A bar that appears after PATIENCE.

    Args:
        shown: whether there is a terminal to show it on.
    """

    def __init__(self, label: str, total: float | None, shown: bool) -> None:
        self._label = label
        self._total = total
        self._done = 0.0
        self._due = time.monotonic() + PATIENCE if shown else math.inf
        self._shown: Any = None
        self._task: Any = None

    def advance(self, amount: float) -> None:
        """Report that `amount` more is done."""
        self.reach(self._done + amount, self._total)

    def reach(self, done: float, total: float | None) -> None:
        """Report how much is done, and the total."""
        self._done, self._total = done, total
        if self._shown is None and time.monotonic() >= self._due:
            self._start()
        if self._shown is not None:
            self._shown.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        """Remove the bar."""
        if self._shown is not None:
            self._shown.stop()

    def _start(self) -> None:
        from rich.console import Console  # noqa: PLC0415  # most runs end before they need it
        from rich.markup import escape  # noqa: PLC0415
        from rich.progress import Progress  # noqa: PLC0415

        self._shown = Progress(console=Console(stderr=True), transient=True)
        self._task = self._shown.add_task(escape(printable(self._label)), total=self._total)
        self._shown.start()
