"""A progress bar for what takes longer than a second: on stderr, when that is a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from delayq.model.text import printable
from delayq.protocol.command import Command
from delayq.protocol.operation import Operation

PATIENCE = 1.0  # seconds that pass without a bar


@contextmanager
def progress(label: str, total: float | None) -> Generator[ProgressBar]:
    """Show how far something is, as the bar is told.

    Args:
        total: what it comes to, or None when that is not known.
    """
    bar = ProgressBar(label, total, shown=sys.stderr.isatty())
    try:
        yield bar
    finally:
        bar.stop()


class ProgressBar:
    """A bar that shows itself when it is time.

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
        """Tell of some more that is done."""
        self.reach(self._done + amount, self._total)

    def reach(self, done: float, total: float | None) -> None:
        """Tell how much is done, and of how much."""
        self._done, self._total = done, total
        if self._shown is None and time.monotonic() >= self._due:
            self._start()
        if self._shown is not None:
            self._shown.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        """Take the bar away."""
        if self._shown is not None:
            self._shown.stop()

    def _start(self) -> None:
        from rich.console import Console  # noqa: PLC0415  # most runs are over before they need it
        from rich.markup import escape  # noqa: PLC0415
        from rich.progress import Progress  # noqa: PLC0415

        self._shown = Progress(console=Console(stderr=True), transient=True)
        self._task = self._shown.add_task(escape(printable(self._label)), total=self._total)
        self._shown.start()


def watched(
    operation: Callable[..., Operation[int]], script: str, advance: Callable[[float], None]
) -> Callable[..., Operation[int]]:
    """Return an operation as it is, but that `advance` is told of every message that a script of this name moves."""

    def run(*args: Any) -> Operation[int]:
        steps = operation(*args)
        commands: list[Command[Any]] = next(steps)
        while True:
            results = yield commands
            for command, result in zip(commands, results, strict=True):
                moves = command.script is not None and command.script.name == script
                if moves and not isinstance(result, Exception):
                    advance(result if isinstance(result, int) else sum(result))
            try:
                commands = steps.send(results)
            except StopIteration as stop:
                return stop.value  # type: ignore[no-any-return]  # what the generator returns

    return run
