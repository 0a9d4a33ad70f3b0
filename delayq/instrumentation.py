"""What `delayq.telemetry` and `delayq.sentry` have in common."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Protocol

from delayq.log import is_interrupt, log, own_frames
from delayq.model.delivery import Delivery
from delayq.model.middleware import Middleware
from delayq.model.outcome import error_text
from delayq.model.record import Record


class HasMiddleware(Protocol):
    """A queue, sync or async."""

    @property
    def middleware(self) -> Middleware: ...


class Harmless:
    """A context manager whose own failure is logged, and changes nothing: exporters and propagators are the program's.

    It swallows no error of its block.
    """

    def __init__(self, inner: AbstractContextManager[object]) -> None:
        self._inner: AbstractContextManager[object] | None = inner

    def __enter__(self) -> None:
        try:
            self._inner is not None and self._inner.__enter__()
        except BaseException as error:  # noqa: BLE001  # it is the program's code
            self._inner = None
            _note_failure(error)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._inner is not None and self._inner.__exit__(kind, error, trace)
        except BaseException as own:  # noqa: BLE001  # it is the program's code
            if own is not error:
                _note_failure(own)


def _note_failure(error: BaseException) -> None:
    if is_interrupt(error):
        raise error
    log.error("telemetry failed", error=error_text(error), exc_info=own_frames(error))


def destination(message: Delivery[Any] | Record) -> str:
    """Return the name of the queue or topic of a delivery."""
    return message.topic if isinstance(message, Record) else message.queue


def delivery_number(message: Delivery[Any] | Record) -> int:
    """Return the number of a delivery, 1 for the first."""
    return message.deliveries if isinstance(message, Record) else message.attempt
