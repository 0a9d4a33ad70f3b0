"""The job of a pool's processes: the handler, packed here and unpacked there."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

from delayq.errors import InvalidInput
from delayq.model.middleware import Middleware
from delayq.model.outcome import is_coroutine_function
from delayq.model.typed_payload import adapt, original
from delayq.runtime.handler_registry import ConsumerHandlers, Handler, HandlerRegistry
from delayq.runtime.recycling import Recycling

Pool: TypeAlias = Literal["thread", "process"]


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_pool(pool: object, initializer: object, recycling: Recycling) -> None:
    """Raise InvalidInput for an unknown pool, or for options of processes that there would not be."""
    if pool not in ("thread", "process"):
        raise InvalidInput(f'unknown pool {pool!r}: give "thread" or "process"')
    if initializer is not None and pool != "process":
        raise InvalidInput(f'initializer {initializer!r} runs in pool processes only: also give pool="process"')
    if initializer is not None and not callable(initializer):
        raise InvalidInput(f"initializer {initializer!r} is not callable")
    for name, limit in zip(("recycle_after", "recycle_memory"), recycling, strict=True):
        if limit is not None and pool != "process":
            raise InvalidInput(
                f"{name} {limit!r} renews pool processes, and this process runs the handlers itself: also give "
                'pool="process", or run `delayq consume`, which can renew the whole consumer'
            )


class ProcessJob(NamedTuple):
    """A handler and what it needs, packed.

    Attributes:
        queue: its name.
        handler: pickled; None if the queue has only functions with names, as tasks and those of schedules.
        initializer: called first; pickled, or None.
        variable: the module and name of the queue, to take its middleware and these functions from; None if it has
            neither.
        around: the number of middleware functions, the names of these functions, and whether others are found.
    """

    queue: str
    handler: bytes | None
    initializer: bytes | None
    variable: tuple[str, str] | None
    around: tuple[int, list[tuple[str, str]], bool]

    def unpack(self) -> Handler:
        """Return the function to call with each message.

        Raises:
            InvalidInput: the queue differs in this process from the one that was packed.
            Exception: raised by a module that cannot be imported.
        """
        if self.initializer is not None:
            pickle.loads(self.initializer)()
        main = None if self.handler is None else adapt(pickle.loads(self.handler))
        handlers, middleware = HandlerRegistry(self.queue), Middleware()
        if self.variable is not None:
            module, name = self.variable
            queue = getattr(importlib.import_module(module), name)
            if _around(queue) != self.around:
                raise InvalidInput(
                    f"{module}:{name} has other middleware, tasks or schedule functions in the pool process than in "
                    f"your program ({_around(queue)}, not {self.around}): register all of them in {module}, or in a "
                    "module it imports"
                )
            handlers, middleware = queue.handlers, queue.middleware
        return ConsumerHandlers(handlers, main, middleware, None).handle


def pack(queue: Any, handler: Handler | None, initializer: Callable[[], object] | None) -> ProcessJob:
    """Return the job of a queue's handler.

    Args:
        queue: of either face.
        handler: a plain function, or None.
        initializer: called first in each process.

    Raises:
        InvalidInput: a part of it cannot be sent to a process.
    """
    for function in queue.handlers.functions(handler):
        if is_coroutine_function(function):
            raise InvalidInput(
                f"handler {original(function)!r} is an async function, which runs on the event loop: give a plain one, "
                'or leave out pool="process"'
            )
    variable = None
    if any(_around(queue)):
        variable = _variable(queue)
        if variable is None:
            raise InvalidInput(
                f"{queue!r} has middleware, tasks or schedule functions, which a pool process would not find: make the "
                "queue a variable of a module that can be imported"
            )
    packed = None if handler is None else _packed(original(handler), "handler")
    begin = None if initializer is None else _packed(initializer, "initializer")
    return ProcessJob(queue.name, packed, begin, variable, _around(queue))


def _packed(function: Any, what: str) -> bytes:
    try:
        return pickle.dumps(function)
    except Exception as error:
        raise InvalidInput(
            f"{what} {function!r} cannot be sent to a process ({error}): give a top-level function of a module, not a "
            "lambda or a nested function"
        ) from error


def _variable(queue: object) -> tuple[str, str] | None:
    """Return the module and the name of the variable that holds a queue."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                if value is queue:
                    return name, key
    return None


def _around(queue: Any) -> tuple[int, list[tuple[str, str]], bool]:
    handlers = queue.handlers
    return queue.middleware.count, sorted(handlers.named), handlers.find_task is not None
