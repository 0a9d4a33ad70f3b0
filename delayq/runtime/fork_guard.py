"""Handlers that fork: the new process ends with the handler, and does not become a second consumer."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Generator
from functools import partial
from types import coroutine
from typing import Any, NoReturn

from delayq.model.outcome import is_coroutine_function

forks = 0  # from the first process to this one: faster to read for each message than the process id


def _note_fork() -> None:
    global forks  # noqa: PLW0603
    forks += 1


os.register_at_fork(after_in_child=_note_fork)


def guarded(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a handler that returns only in the process that has called it.

    A process that the handler has forked ends when the handler returns, raises or exits there. One forked by an async
    handler also ends when it awaits, since the event loop is its parent's. The code around the handler runs only in the
    parent.
    """
    if is_coroutine_function(handler):

        async def handle_async(message: Any) -> Any:
            return await _stepped(handler, message)

        return handle_async

    def handle(message: Any) -> Any:
        before = forks
        try:
            returned = handler(message)
        except BaseException as error:
            if forks != before:
                end_fork(error)
            raise
        if forks != before:
            end_fork()
        return returned

    return handle


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def _nothing() -> None:
    pass


def steps(
    handler: Callable[[Any], Any],
    message: Any,
    run: Callable[..., Any] = _call,
    on_wait: Callable[[], object] = _nothing,
) -> Generator[Any, Any, Any]:
    """Await an async handler, and check after each step whether it has forked this process.

    Args:
        run: takes each step, such as the `run` of a context.
        on_wait: called once the handler waits for something.
    """
    before, throw = forks, None
    awaited = run(handler, message).__await__()
    try:
        effect, waits = run(next, awaited), False
        while True:
            if forks != before:
                end_fork(
                    RuntimeError("a process forked by an async handler cannot await: the event loop is its parent's")
                )
            if not waits:
                waits = True
                on_wait()
            try:
                answer = yield effect
            except BaseException as error:  # noqa: BLE001  # it is the handler's
                throw = partial(run, awaited.throw, error)
            else:
                effect = run(awaited.send, answer)
                continue
            effect, throw = throw(), None
    except StopIteration as stop:
        if forks != before:
            end_fork()
        return stop.value
    except BaseException as error:
        throw = None  # it may be this error, whose traceback holds this frame
        if forks != before:
            end_fork(error)
        raise


_stepped = coroutine(steps)


def end_fork(error: BaseException | None = None) -> NoReturn:
    """End this process as Python does, but without its parent's exit handlers."""
    code = error.code if isinstance(error, SystemExit) else error is not None
    try:
        if error is not None and not isinstance(error, SystemExit):
            traceback.print_exception(error)
        flush()
    finally:  # even if printing fails because nobody reads the output
        os._exit((code if isinstance(code, int) else code is not None) & 0xFF)


def flush() -> None:
    """Flush the standard streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # no stream, nobody reads it, or it is the handler's own
            stream.flush()
