"""The signals that end consumers in good order: SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

Handler: TypeAlias = Callable[[int, FrameType | None], object]


def ending() -> list[signal.Signals]:
    """Return SIGTERM, SIGINT, and SIGHUP, unless the program handles or ignores that one, as under `nohup`."""
    hangs_up = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    return [signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if hangs_up else [])]


class Replaced:
    """The handlers of signals that consumers have replaced with `handler`, which passes signals on to them.

    Without that, a web server whose process runs a consumer would not be stopped by SIGTERM.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._before: dict[int, Any] = {}

    def replace(self) -> None:
        """Replace the handlers."""
        for number in ending():
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._handler)

    def pass_on(self, number: int, frame: FrameType | None = None) -> None:
        """Call the program's own handler, if it had one."""
        before = self._before.get(number)
        if callable(before) and not _interrupts(before):
            before(number, frame)

    def restore(self) -> None:
        """Restore the handlers, unless somebody else has replaced them since."""
        for number, old in self._before.items():
            if signal.getsignal(number) == self._handler:
                signal.signal(number, signal.SIG_DFL if old is None else old)


def _interrupts(handler: Any) -> bool:
    """Whether it is the handler of SIGINT of Python or `asyncio.run`, which would interrupt running handlers."""
    owner = getattr(handler.func, "__self__", None) if isinstance(handler, functools.partial) else None
    return handler is signal.default_int_handler or isinstance(owner, asyncio.Runner)
