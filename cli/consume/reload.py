"""``consume --reload``: the consumer begins anew when a Python file of the folder changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from delayq.log import log
from delayq.runtime.supervisor import Supervisor

LOOK_MS = 100  # a signal waits for the end of a look
GATHER_MS = 200  # for the files that are saved together; the embedded store writes all the time, and must delay nothing
NAMED = 3  # changed files, in the log
FOREIGN = {"__pycache__", "node_modules", "site-packages"}
"""Folders of which nothing is the project's own; hidden ones, such as .venv and .git, are none of it either."""


class Reloader(Supervisor):
    """A supervisor that starts its processes anew when a Python file changes: what they run is finished first.

    Processes that have ended by themselves wait for the next change: for that which mends the file, perhaps.

    Args:
        command: the program and its arguments.
        processes: 1 to 1,000.
        shutdown_timeout: seconds that the processes take at most to finish what they run.
        folder: whose files are watched, and those of all folders in it.

    Raises:
        click.UsageError: the package that watches is not installed.
    """

    def __init__(self, command: Sequence[str], processes: int, shutdown_timeout: float, folder: Path) -> None:
        super().__init__(command, processes, shutdown_timeout)
        self._changes = changes(folder)
        self._folder = folder
        self._is_told = False
        self._is_watching = False

    def _look(self) -> None:
        changed = self._changed()
        if changed:
            more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
            log.info("restarting", changed=", ".join(changed[:NAMED]) + more)
            self._end()
            self._changed()  # what has changed until here is in what is started now
            self._children, self._is_told = self._new_children(), False
        if self._stopping:
            return
        code = super()._look()
        if code is not None and not self._is_told:
            log.warning("consumer ended, waiting for a change", exit_code=code)
            self._is_told = True

    def _changed(self) -> list[str]:
        try:
            changed = next(self._changes)
        except (OSError, RuntimeError) as error:  # of the system's limits, most often
            text = f"cannot watch {self._folder}: {error} (with WATCHFILES_FORCE_POLLING=1 it takes no watches)"
            raise click.ClickException(text) from error
        if not self._is_watching:
            log.info("watching Python files", folder=str(self._folder))
            self._is_watching = True
        return changed


def changes(folder: Path) -> Iterator[list[str]]:
    """Watch a folder: each time, wait a moment, and return the Python files that have changed since the last time.

    Raises:
        click.UsageError: the package that watches is not installed.
    """
    try:
        from watchfiles import watch  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        raise click.UsageError("--reload needs the package watchfiles: pip install 'delayq[reload]'") from error
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it tells of each change, also of those left out here
    # A filter of its own would have it go on waiting while others write: the look would not end.
    looks = watch(
        folder,
        watch_filter=None,
        debounce=GATHER_MS,
        rust_timeout=LOOK_MS,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    return (sorted({name for _, path in look if (name := own(Path(path), folder))}) for look in looks)


def own(path: Path, folder: Path) -> str | None:
    """Return the name, within `folder`, of a Python file of the project; None for any other file."""
    if path.suffix != ".py" or not path.is_relative_to(folder):
        return None
    within = path.relative_to(folder)
    return None if any(part.startswith(".") or part in FOREIGN for part in within.parts) else str(within)
