"""``consume --reload``: restart the consumer when a Python file in the folder changes."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from delayq.log import log
from delayq.model.extras import install

from .supervisor import Supervisor

LOOK_MS = 100  # a signal waits at most this long
GATHER_MS = 200  # to collect files that are saved together; constant writes of the embedded store must not extend it
NAMED = 3  # changed files in the log
FOREIGN = {"__pycache__", "node_modules", "site-packages"}
"""Folders that are not part of the project; hidden folders, such as .venv and .git, are not either."""


class Reloader(Supervisor):
    """A supervisor that restarts its processes when a Python file changes, once their running messages are done.

    Processes that ended on their own are started again on the next change, which may fix the file.

    Args:
        command: the program and its arguments.
        processes: 1 to 1,000.
        shutdown_timeout: seconds that the processes may take to finish running messages.
        folder: the folder to watch, with all folders in it.

    Raises:
        click.UsageError: watchfiles is not installed.
    """

    def __init__(self, command: Sequence[str], processes: int, shutdown_timeout: float, folder: Path) -> None:
        super().__init__(command, processes, shutdown_timeout)
        self._changes = changes(folder)
        self._folder = folder
        self._is_logged = False
        self._is_watching = False

    def _look(self) -> None:
        changed = self._changed()
        if changed:
            more = f" and {len(changed) - NAMED} more" if len(changed) > NAMED else ""
            log.info("restarting", changed=", ".join(changed[:NAMED]) + more)
            self._end()
            self._changed()  # the new processes already have these changes
            self._children, self._is_logged = self._new_children(), False
        if self._stopping:
            return
        code = super()._look()
        if code is not None and not self._is_logged:
            log.warning("consumer ended, waiting for a change", exit_code=code)
            self._is_logged = True

    def _changed(self) -> list[str]:
        try:
            changed = next(self._changes)
        except (OSError, RuntimeError) as error:  # mostly a limit of the system
            text = f"cannot watch {self._folder}: {error} (set WATCHFILES_FORCE_POLLING=1 to poll the files instead)"
            raise click.ClickException(text) from error
        if not self._is_watching:
            log.info("watching Python files", folder=str(self._folder))
            self._is_watching = True
        return changed


def changes(folder: Path) -> Iterator[list[str]]:
    """Return a function that waits a moment and returns the Python files that changed since its last call.

    Raises:
        click.UsageError: watchfiles is not installed.
    """
    try:
        from watchfiles import watch  # noqa: PLC0415  # an optional extra
    except ImportError as error:
        raise click.UsageError(f"--reload needs the package watchfiles: {install('reload')}") from error
    logging.getLogger("watchfiles").setLevel(logging.WARNING)  # it logs every change, even those ignored here
    # With a filter, it would keep waiting while other files are written, and never return.
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
    """Return the path of a Python file of the project, relative to `folder`; None for any other file."""
    if path.suffix != ".py" or not path.is_relative_to(folder):
        return None
    within = path.relative_to(folder)
    return None if any(part.startswith(".") or part in FOREIGN for part in within.parts) else str(within)
