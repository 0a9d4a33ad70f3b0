"""The library's loggers: structlog's, when the application has configured that, else the standard library's."""

from __future__ import annotations

import logging
import re
from typing import Any

import structlog
from structlog.typing import EventDict


class _Log:
    """Stands for the logger; an application may configure structlog after it has imported delayq."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._standard = structlog.wrap_logger(
            logging.getLogger(name),
            processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _to_record],
            wrapper_class=structlog.stdlib.BoundLogger,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(structlog.get_logger(self._name) if structlog.is_configured() else self._standard, name)


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


def _to_record(logger: object, method: str, event: EventDict) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a standard logger's method takes: fields are in the text, and attributes of the record.

    The values are arguments of the text, so that tools such as Sentry see which lines are of one kind.
    """
    options: dict[str, Any] = {name: event.pop(name) for name in ("exc_info", "stack_info") if name in event}
    text = event.pop("event")
    options["extra"] = {name: value for name, value in event.items() if name not in _OF_RECORDS}
    if event:
        text = " ".join([text.replace("%", "%%"), *(f"{name}=%s" for name in event)])
    return (text, *quoted(logger, method, event).values()), {"stacklevel": _FRAMES, **options}


_OF_RECORDS = {"message", "asctime", *vars(logging.makeLogRecord({}))}  # logging refuses fields of these names
_FRAMES = 4  # from the standard logger through structlog to the line in delayq

log: Any = _Log("delayq")
server_log: Any = _Log("delayq.server")
"""For warnings of how a server is set up, which a program may silence alone."""


def log_of(message: Any) -> Any:
    """Return a logger whose lines tell which delivery they are about, of a message or a record."""
    return log.bind(**message.labels)
