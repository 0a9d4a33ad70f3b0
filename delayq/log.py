"""The library's logger: structlog as the application has configured it, else readable lines on stderr."""

from __future__ import annotations

import re
import sys
from typing import Any

import structlog
from structlog.typing import EventDict


class _Stderr:
    """Whatever `sys.stderr` is when a line is written."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _Log:
    """Stands for the logger; an application may configure structlog after it has imported delayq."""

    def __getattr__(self, name: str) -> Any:
        return getattr(structlog.get_logger("delayq") if structlog.is_configured() else _unconfigured, name)


class _Quoted:
    """A text that is shown as Python writes it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def quoted(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Quote values in which another field, or another line, could seem to begin: users choose names, and errors."""
    for name, value in event.items():
        if isinstance(value, str) and name not in _OURS and not (value.isprintable() and _PLAIN.fullmatch(value)):
            event[name] = _Quoted(value)
    return event


_OURS = {"event", "timestamp", "level", "exception"}
_PLAIN = re.compile(r"[^\s=\"']+")

# structlog's own default is stdout, where a library's lines would stand among a program's output.
# And its own tracebacks hold the values of all variables, some of which are nobody's business.
_unconfigured = structlog.wrap_logger(
    structlog.PrintLogger(_Stderr()),  # type: ignore[arg-type]  # it needs no more
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper("%Y-%m-%d %H:%M:%S", utc=False),
        quoted,
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ],
)

log: Any = _Log()


def log_of(message: Any) -> Any:
    """Return a logger whose lines tell which delivery they are about, of a message or a record."""
    return log.bind(**message.labels)
