"""Run a program to its end: perform each effect that it yields, and send it the result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def run(program: Generator[Any, Any, T], perform: Callable[[Any], Any]) -> T:
    """Run a program, which may handle errors of `perform`."""
    try:
        effect = next(program)
        while True:
            try:
                answer = perform(effect)
            except BaseException as error:  # noqa: BLE001  # it is the program's to handle
                effect = program.throw(error)
            else:
                effect = program.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the generator returns


async def run_async(program: Generator[Any, Any, T], perform: Callable[[Any], Awaitable[Any]]) -> T:
    """Run a program whose effects are awaited; it may handle errors of `perform`, including a cancel."""
    try:
        effect = next(program)
        while True:
            try:
                answer = await perform(effect)
            except BaseException as error:  # noqa: BLE001  # it is the program's to handle
                effect = program.throw(error)
            else:
                effect = program.send(answer)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the generator returns
