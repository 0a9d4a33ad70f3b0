"""The library's loggers: structlog's if the application has configured structlog, else the standard library's.

The processors and handlers are the application's. If one of them raises, only the line is lost. structlog, which takes
longer to import than the rest of delayq, is imported with the first line that somebody wants.
"""

from __future__ import annotations

import contextlib
import logging
import re
import sys
from collections.abc import Callable
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from delayq import signals
from delayq.late_import import late_import

if TYPE_CHECKING:
    from structlog.typing import EventDict

before_first_line: Callable[[], None] | None = None
"""Configures logging, if it is not yet configured; it then sets this to None."""

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _Log:
    """A proxy for the logger: an application may configure structlog after it has imported delayq."""

    def __init__(self, name: str) -> None:
        self._name = name

    @cached_property
    def _standard(self) -> Any:
        import structlog  # noqa: PLC0415  # `write` has imported it

        return structlog.wrap_logger(
            logging.getLogger(self._name),
            processors=[structlog.stdlib.filter_by_level, structlog.contextvars.merge_contextvars, _to_record],
            wrapper_class=structlog.stdlib.BoundLogger,
        )

    def bind(self, **fields: Any) -> _Bound:
        """Return a logger whose lines also have these fields."""
        return _Bound(self, fields)

    def __getattr__(self, method: str) -> Any:
        return partial(self.write, method, {})

    def write(self, method: str, fields: dict[str, Any], event: str, **more: Any) -> None:
        """Write a line with a method of the logger."""
        if "structlog" not in sys.modules:  # so the application has not configured it
            level = _LEVELS.get(method, logging.CRITICAL)
            if not logging.getLogger(self._name).isEnabledFor(level):
                return
        try:
            if before_first_line is not None:
                before_first_line()
            with late_import:
                import structlog  # noqa: PLC0415  # see the module's docstring
            logger = structlog.get_logger(self._name) if structlog.is_configured() else self._standard
            getattr(logger.bind(**fields), method)(event, **more)
        except BaseException as error:
            if is_interrupt(error):
                raise
            with contextlib.suppress(Exception):
                sys.stderr.write(f"delayq: log line lost, since logging raised {type(error).__name__}: {event}\n")


class _Bound:
    """A logger with fields."""

    def __init__(self, log: _Log, fields: dict[str, Any]) -> None:
        self._log = log
        self._fields = fields

    def bind(self, **fields: Any) -> _Bound:
        """Return a logger whose lines also have these fields."""
        return _Bound(self._log, self._fields | fields)

    def __getattr__(self, method: str) -> Any:
        return partial(self._log.write, method, self._fields)


def is_interrupt(error: BaseException) -> bool:
    """Whether an error may be Ctrl-C, which must end the program, and not something that a function has raised.

    Python raises KeyboardInterrupt only in the main thread, and not while a consumer there handles the signals.
    """
    return isinstance(error, KeyboardInterrupt) and signals.raises_interrupt()


def own_frames(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """Return an error of the user's code for `exc_info`, without the frames of delayq that led to this code."""
    whole = trace = error.__traceback__
    while isinstance(trace, TracebackType) and _is_ours(trace):
        trace = trace.tb_next
    return type(error), error, trace or whole


def _is_ours(trace: TracebackType) -> bool:
    package = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
    return package in {"delayq", "contextlib", "asyncio"}  # the others call for delayq


class _Quoted:
    """A text that is shown as Python writes it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return repr(self._text)


def quoted(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Quote values that could look like another field or another line: names and errors come from users."""
    for name, value in event.items():
        if isinstance(value, str) and name not in _OURS and not (value.isprintable() and _PLAIN.fullmatch(value)):
            event[name] = _Quoted(value)
    return event


_OURS = {"event", "timestamp", "level", "exception"}
_PLAIN = re.compile(r"[^\s=\"']+")


def _to_record(logger: object, method: str, event: EventDict) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a standard logger's method: fields are in the text, and attributes of the record.

    The values are arguments of the text, so that tools such as Sentry can group the lines.
    """
    options: dict[str, Any] = {name: event.pop(name) for name in ("exc_info", "stack_info") if name in event}
    text = event.pop("event")
    options["extra"] = {name: value for name, value in event.items() if name not in _OF_RECORDS}
    if event:
        text = " ".join([text.replace("%", "%%"), *(f"{name}=%s" for name in event)])
    return (text, *quoted(logger, method, event).values()), {"stacklevel": _FRAMES, **options}


_OF_RECORDS = {"message", "asctime", *vars(logging.makeLogRecord({}))}  # logging refuses fields of these names
_FRAMES = 5  # from the standard logger through structlog to the line in delayq

log: Any = _Log("delayq")
server_log: Any = _Log("delayq.server")
"""For warnings about a server's configuration, which a program may silence separately."""


def log_of(message: Any) -> Any:
    """Return a logger whose lines say which delivery of a message or record they are about."""
    return log.bind(**message.labels)


def log_failure(line: Any, following: str, error: str, cause: BaseException | None) -> None:
    """Log that a delivery failed, with the traceback of what the handler raised.

    Args:
        line: a logger whose lines name the message or the record.
        following: what comes next: "retry" or "dead".
        cause: what the handler raised; None for no traceback.
    """
    trace = {} if cause is None else {"exc_info": own_frames(cause)}
    line.warning("delivery failed", next=following, error=error, **trace)
    if cause is not None:
        line.debug("all frames of a failed delivery", exc_info=cause)
