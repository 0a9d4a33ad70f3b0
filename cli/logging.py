"""The program's log on stderr: readable text, or one JSON document per line."""

from __future__ import annotations

import datetime as dt
import io
import logging
import os
import sys
from typing import Any, Literal, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from delayq import log
from delayq.log import quoted
from delayq.model.text import printable

from .output import printable_json

LogFormat = Literal["console", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]


def configure(log_format: LogFormat = "console", level: LogLevel = "info", *, of_servers: bool = False) -> None:
    """Send the log lines of structlog and the standard library to stderr, in one format.

    Lines that a handler logs include its message's queue, id and attempt.

    Args:
        of_servers: whether to warn about a server's settings, which would be too much for every short command.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper("iso") if log_format == "json" else _stamp,
        structlog.stdlib.PositionalArgumentsFormatter(),
    ]
    log.before_first_line = None
    handler = logging.StreamHandler(sys.stderr)
    rendering = _rendering(log_format)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=rendering))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("delayq.server").setLevel(logging.NOTSET if of_servers else logging.ERROR)
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


# Without the values of variables: they may be secret, and many people read a log.
_tracebacks = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=20)
)


def _stamp(_logger: object, _method: str, event: EventDict) -> EventDict:
    event["timestamp"] = dt.datetime.now().astimezone().isoformat(sep=" ", timespec="milliseconds")
    return event


def _rendering(log_format: LogFormat) -> list[Processor]:
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if log_format == "json":
        return [remove, _tracebacks, structlog.processors.JSONRenderer(ensure_ascii=False), _on_one_line]
    console = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
        pad_event_to=0,
        pad_level=False,
        sort_keys=False,
        exception_formatter=_traceback,
    )
    return [remove, quoted, _harmless, console]


def _harmless(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Escape terminal control characters."""
    if isinstance(event["event"], str) and not event["event"].isprintable():
        event["event"] = _lines(event["event"])
    return event


def _traceback(out: TextIO, error: ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(_lines(text.getvalue()))


def _lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _on_one_line(_logger: object, _method: str, text: Any) -> str:
    return printable_json(text)
