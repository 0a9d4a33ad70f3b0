"""Operations: generators that yield commands, and how several of them share round trips."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar

from msgspec.structs import replace

from delayq.errors import DelayqError
from delayq.protocol.command import Command

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")

Operation: TypeAlias = Generator[list[Command[Any]], list[Any], T]
"""An operation: it yields commands that are sent in one round trip, is sent their results, and returns its own.

A result is the value that the command reads from its reply, or the DelayqError for the server's error.
"""

Work: TypeAlias = Callable[[], Any]
"""Work on files, which may take long, so the async API does it in a thread."""

Program: TypeAlias = Generator[Any, Any, T]
"""An operation beyond Redis: besides commands, it yields other effects, such as `Work`, and is sent their results."""


def execute(call: Command[T]) -> Operation[T]:
    """Run one call; return its result or raise its error."""
    (reply,) = yield [call]
    result: T = unwrap(reply)
    return result


def unwrap(result: T | Exception) -> T:
    """Return a result, or raise it if it is an error."""
    if isinstance(result, Exception):
        raise result
    return result


def gather(*operations: Operation[Any] | None) -> Operation[list[Any]]:
    """Run several operations side by side, with shared round trips; return their results, None for a None.

    If one fails, its result is its DelayqError, so that the others' results are not lost. If a whole round trip fails,
    that is an error of each of its calls.
    """
    results: list[Any] = [None] * len(operations)
    running: list[tuple[int, Operation[Any], Any]] = [
        (number, each, None) for number, each in enumerate(operations) if each is not None
    ]
    while True:
        waiting: list[tuple[int, Operation[Any], list[Command[Any]]]] = []
        for number, each, replies in running:
            try:
                waiting.append((number, each, each.send(replies)))
            except StopIteration as stop:
                results[number] = stop.value
            except DelayqError as error:
                results[number] = error
        if not waiting:
            return results
        trip = [call for _, _, calls in waiting for call in calls]
        try:
            answers = yield trip
        except DelayqError as error:
            answers = [error] * len(trip)
        running, start = [], 0
        for number, each, calls in waiting:
            running.append((number, each, answers[start : start + len(calls)]))
            start += len(calls)


def once(operation: Operation[T]) -> Operation[T]:
    """Run an operation whose commands are not sent again if their connection fails."""
    replies: Any = None
    while True:
        try:
            calls = operation.send(replies)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # what the generator returns
        replies = yield [replace(call, repeats=False) for call in calls]


def noop() -> Operation[None]:
    """Do nothing, without a round trip."""
    yield from ()


def computed(function: Callable[Concatenate[C, P], T]) -> Callable[Concatenate[C, P], Operation[T]]:
    """Turn a function into an operation without a round trip, for `Queue.execute`."""

    def operation(context: C, /, *args: P.args, **kwargs: P.kwargs) -> Operation[T]:
        yield from ()
        return function(context, *args, **kwargs)

    return operation
