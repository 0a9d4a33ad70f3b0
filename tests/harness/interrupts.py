"""Exceptions raised at any line of a call, as those of signal handlers are, and cancellations at any of its awaits."""

from __future__ import annotations

import asyncio
import dis
import functools
import itertools
import sys
from collections.abc import Callable, Coroutine, Generator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

import redis

from tests.harness.tree import ROOT

FOLDERS = (f"{ROOT / 'delayq'}/", f"{ROOT / 'cli'}/", f"{Path(redis.__file__).parent}/")


class Interrupted(Exception):  # what a soft time limit raises is no error
    """Raised by a signal handler."""


class Interrupt:
    """Raises an exception at a line of delayq's or redis-py's code, counted from 1, while the context is open.

    Attributes:
        where: the line at which it was raised; None if the call had fewer lines.
    """

    def __init__(self, at: int, error: BaseException) -> None:
        self.where: str | None = None
        self._left = at
        self._error: BaseException | None = error

    def __enter__(self) -> Self:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, *_: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(FOLDERS) and not _is_in_finalizer(frame) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lasti not in _ends_of_with(frame.f_code):
            self._left -= 1
            if self._left == 0:
                sys.settrace(None)
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                error, self._error = self._error, None  # its traceback keeps connections alive
                assert error is not None
                try:
                    raise error
                finally:
                    del error
        return self._line


def _is_in_finalizer(frame: FrameType | None) -> bool:
    """Whether Python would only print what is raised."""
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


@cache
def _ends_of_with(code: CodeType) -> frozenset[int]:
    """Return where a `with` block has ended and its context is about to be left: no signal handler runs there."""
    steps = list(dis.get_instructions(code))
    return frozenset(
        first.offset
        for first, *others in zip(steps, steps[1:], steps[2:], strict=False)
        if all(each.opname == "LOAD_CONST" and each.argval is None for each in (first, *others))
    )


class Cancelling:
    """Awaits a coroutine, and calls `cancel` at its wait number `at`."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, cancel: Callable[[], object]) -> None:
        self._work = work
        self._at = at
        self._cancel = cancel
        self.happened = False

    def __await__(self) -> Generator[Any, Any, Any]:
        waiting = self._work.__await__()
        step: Callable[[None], Any] = waiting.send
        for wait in itertools.count(1):
            try:
                waited_for = step(None)
            except StopIteration as stop:
                return stop.value
            if wait == self._at:
                self.happened = True
                self._cancel()
            step = waiting.send
            try:
                yield waited_for
            except BaseException as error:  # noqa: BLE001  # the coroutine gets it
                step = functools.partial(_thrown, waiting, error)
        raise AssertionError


def _thrown(waiting: Generator[Any, Any, Any], error: BaseException, _: None) -> Any:
    return waiting.throw(error)


async def cancelled_at(at: int, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
    """Run a coroutine that is cancelled at its wait number `at`; return whether it waited so often."""
    run = Cancelling(work(), at, lambda: task.cancel())  # noqa: PLW0108  # it begins later

    async def main() -> None:
        await run

    task = asyncio.ensure_future(main())
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()
    return run.happened
