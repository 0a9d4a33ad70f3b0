"""Operations that work on files, too, without I/O: for both faces.

A `Plan` yields calls for Redis, as all operations do, and now and then some work on files: a function without
arguments, whose result it is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeAlias, TypeVar

from delayq.calls import Call, Steps, as_is, one
from delayq.operations.core import Core

T = TypeVar("T")
Work: TypeAlias = Callable[[], Any]
Plan: TypeAlias = Generator[Any, Any, T]


def steps(plan: Plan[T]) -> Steps[T]:
    """Make a plan an operation: the work on files is done in its place, in the caller's thread."""
    try:
        wanted = next(plan)
        while True:
            try:
                done = wanted() if callable(wanted) else (yield wanted)
            except BaseException as error:  # noqa: BLE001  # it is the plan's to handle
                wanted = plan.throw(error)
            else:
                wanted = plan.send(done)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the generator returns


def server_ms(core: Core) -> Steps[int]:
    """Return the time, ms, that the scripts go by."""
    now = core.clock()
    if now:
        return int(now)
    key = core.shards[0].keys.meta
    seconds, micros = yield from one(Call(key, ("TIME",), as_is))
    return int(seconds) * 1000 + int(micros) // 1000
