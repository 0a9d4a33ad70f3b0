"""The log of short commands: most log nothing, and importing structlog takes longer than they do."""

from __future__ import annotations

import logging

import click

from delayq import log


def configure_late() -> None:
    """Configure logging, as `logging.configure` does, with the first line of the running command."""
    late = _Late()
    logging.basicConfig(handlers=[late], level=logging.INFO, force=True)
    logging.getLogger("delayq.server").setLevel(logging.ERROR)
    log.before_first_line = _configure

    @click.get_current_context().call_on_close
    def forget() -> None:  # later lines are those of a program that has called the command
        log.before_first_line = None
        logging.getLogger().removeHandler(late)


def _configure() -> None:
    from .logging import configure  # noqa: PLC0415  # imports structlog

    configure()


class _Late(logging.Handler):
    """Passes a first line of the standard library's loggers to the handler that it configures."""

    def emit(self, record: logging.LogRecord) -> None:
        _configure()
        logging.getLogger().handle(record)
