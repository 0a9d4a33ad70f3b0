"""The log of short commands: most log nothing, and importing structlog takes longer than they do."""

from __future__ import annotations

import logging

from delayq import log


def configure_late() -> None:
    """Configure logging, as `logging.configure` does, with the first line."""
    logging.basicConfig(handlers=[_Late()], level=logging.INFO, force=True)
    logging.getLogger("delayq.server").setLevel(logging.ERROR)
    log.before_first_line = _configure


def _configure() -> None:
    from .logging import configure  # noqa: PLC0415  # imports structlog

    log.before_first_line = None
    configure()


class _Late(logging.Handler):
    """Passes a first line of the standard library's loggers to the handler that it configures."""

    def emit(self, record: logging.LogRecord) -> None:
        _configure()
        logging.getLogger().handle(record)
