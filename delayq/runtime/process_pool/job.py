"""What a process of a pool is to do: the handler, as it gets there, where it is unpacked again."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

from delayq.errors import InvalidInput
from delayq.model.outcome import is_coroutine_function
from delayq.model.typed_payload import adapt, original
from delayq.runtime.fork_guard import guarded

Handler: TypeAlias = Callable[[Any], Any]
Pool: TypeAlias = Literal["thread", "process"]


def cores() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_pool(pool: object, initializer: object) -> None:
    """Raise InvalidInput for what is no pool, or an initializer that nothing would call."""
    if pool not in ("thread", "process"):
        raise InvalidInput(f'pool {pool!r} is neither "thread" nor "process"')
    if initializer is not None and pool != "process":
        raise InvalidInput(f'initializer {initializer!r} is called in processes: give pool="process", too')
    if initializer is not None and not callable(initializer):
        raise InvalidInput(f"initializer {initializer!r} is not callable")


class ProcessJob(NamedTuple):
    """A handler, and what it needs, packed.

    Attributes:
        handler: pickled, or None when the queue has but functions of schedules.
        initializer: is called first; pickled, or None.
        variable: the module and the name of the queue, from which its middleware and schedules are taken; None for
            one that has neither.
        around: how many pieces of middleware there are, and the names of the schedules.
    """

    handler: bytes | None
    initializer: bytes | None
    variable: tuple[str, str] | None
    around: tuple[int, list[str]]

    def unpack(self) -> Handler:
        """Return what is to be called with each message.

        Raises:
            InvalidInput: the queue is another one in this process than in that which has packed it.
            Exception: of a module that cannot be imported.
        """
        if self.initializer is not None:
            pickle.loads(self.initializer)()
        handler = None if self.handler is None else adapt(pickle.loads(self.handler))
        if self.variable is None:
            return guarded(_present(handler))
        module, name = self.variable
        queue = getattr(importlib.import_module(module), name)
        if _around(queue) != self.around:
            raise InvalidInput(
                f"{module}:{name} has other middleware or functions of schedules in its process than where it comes "
                f"from ({_around(queue)}, not {self.around}): register all in {module}, or in what that imports"
            )
        wrap = queue.handlers.middleware.wrap
        choose = queue.handlers.crons.route(handler, queue.name, lambda function: wrap(guarded(function)))
        return lambda message: choose(message)(message)


def pack(queue: Any, handler: Handler | None, initializer: Callable[[], object] | None) -> ProcessJob:
    """Return the job of a queue's handler.

    Args:
        queue: of either face.
        handler: a plain function, or None.
        initializer: is called in each process first.

    Raises:
        InvalidInput: something of it cannot be sent to a process.
    """
    for function in (handler, *queue.handlers.crons):
        if is_coroutine_function(function):
            raise InvalidInput(
                f"handler {original(function)!r} is an async function, which runs on the event loop: give a plain one, "
                'or leave pool="process" out'
            )
    variable = None
    if any(_around(queue)):
        variable = _variable(queue)
        if variable is None:
            raise InvalidInput(
                f"{queue!r} has middleware or functions of schedules, which a process could not find: let the queue be "
                "a variable of a module, which it imports"
            )
    packed = None if handler is None else _packed(original(handler), "handler")
    return ProcessJob(
        packed, None if initializer is None else _packed(initializer, "initializer"), variable, _around(queue)
    )


def _packed(function: Any, what: str) -> bytes:
    try:
        return pickle.dumps(function)
    except Exception as error:
        raise InvalidInput(
            f"{what} {function!r} cannot be sent to a process ({error}): give a function that stands in a module, no "
            "lambda and none that is defined within another"
        ) from error


def _variable(queue: object) -> tuple[str, str] | None:
    """Return the module and the name under which a queue is found when that module is imported."""
    for name, module in list(sys.modules.items()):
        if isinstance(module, ModuleType):
            for key, value in list(vars(module).items()):
                if value is queue:
                    return name, key
    return None


def _around(queue: Any) -> tuple[int, list[str]]:
    return queue.handlers.middleware.count, sorted(prepared.name for prepared in queue.handlers.crons.prepared)


def _present(handler: Handler | None) -> Handler:
    assert handler is not None, "a queue without functions of schedules has a handler"
    return handler
