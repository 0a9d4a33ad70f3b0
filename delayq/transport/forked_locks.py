"""Locks of a forked process: a thread of the parent, which the child does not have, may have held one of them.

redis-py has the same gap: its pools take their lock before they notice the fork, and its clusters never notice one.
So the child gets new locks in the place of all those that delayq and redis-py can reach.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

_OURS = "delayq", "redis"
_MAKERS: dict[type, Callable[[], Any]] = {
    type(threading.Lock()): threading.Lock,
    type(threading.RLock()): threading.RLock,
    threading.Condition: threading.Condition,
}
_SKIPPED = str, int, float, bytes, type, FunctionType, ModuleType
_owners: WeakSet[Any] = WeakSet()


def renew_in_child(owner: object) -> None:
    """Give an object, and all of delayq and redis-py that it can reach, new locks in each process forked from this."""
    _owners.add(owner)


def _in_child() -> None:
    modules = [each for name, each in tuple(sys.modules.items()) if name.partition(".")[0] in _OURS]
    todo: list[Any] = list(_owners)
    for module in modules:
        todo += _renewed(module, vars(module))
    seen: set[int] = set()
    while todo:
        each = todo.pop()
        if isinstance(each, _SKIPPED) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            todo += each.values()
        elif isinstance(each, list | tuple | set | frozenset | deque):
            todo += each
        elif _is_ours(type(each)):  # type: ignore[arg-type]  # typeshed: no type object is Hashable
            todo += _renewed(each, dict(_attributes(each)))


@cache
def _is_ours(kind: type) -> bool:
    return any(each.__module__.partition(".")[0] in _OURS for each in kind.__mro__)


def _attributes(each: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(each, "__dict__", {}).items()
    for kind in type(each).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(each, name):
                yield name, getattr(each, name)


def _renewed(owner: object, attributes: dict[str, Any]) -> Iterator[Any]:
    """Renew the locks among the attributes of an object; yield what else they hold."""
    for name, value in tuple(attributes.items()):
        make = _MAKERS.get(type(value))
        if make is not None:
            setattr(owner, name, make())
        elif not isinstance(value, _SKIPPED):
            yield value


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
