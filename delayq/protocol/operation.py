"""Operations: generators that yield commands, and how several of them share round trips."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

from msgspec.structs import replace

from delayq.errors import DelayqError
from delayq.protocol.command import Command

C = TypeVar("C")
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=NamedTuple)

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


def gather(*operations: Operation[Any]) -> Operation[list[Any]]:
    """Run several operations side by side, with shared round trips; return their results.

    If one fails, its result is its DelayqError, so that the others' results are not lost. If a whole round trip fails,
    that is an error of each of its calls.
    """
    results: list[Any] = [None] * len(operations)
    waiting: dict[int, list[Command[Any]]] = {}

    def advance(number: int, replies: list[Any] | None) -> None:
        try:
            waiting[number] = operations[number].send(replies)  # type: ignore[arg-type]  # None starts a generator
        except StopIteration as stop:
            waiting.pop(number, None)
            results[number] = stop.value
        except DelayqError as error:
            waiting.pop(number, None)
            results[number] = error

    for number in range(len(operations)):
        advance(number, None)
    while waiting:
        groups = list(waiting.items())
        trip = [call for _, calls in groups for call in calls]
        try:
            replies = yield trip
        except DelayqError as error:
            replies = [error] * len(trip)
        for number, calls in groups:
            advance(number, replies[: len(calls)])
            replies = replies[len(calls) :]
    return results


def gather_named(operations: R) -> Operation[R]:
    """Run the operations in a named tuple side by side; return it with their results or errors in their places."""
    named = {name: each for name, each in zip(operations._fields, operations, strict=True) if each is not None}
    results = yield from gather(*named.values())
    return operations._replace(**dict(zip(named, results, strict=True)))


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
