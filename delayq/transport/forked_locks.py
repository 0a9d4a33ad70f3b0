"""Locks of a forked process: a thread of the parent, which the child does not have, may have held one of them.

redis-py has the same gap: its pools take their lock before they notice the fork, and its clusters never notice one.
So the child gets new locks in the place of those that are attributes of delayq's and redis-py's objects and modules,
also of classes that derive from theirs.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
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
_PLAIN = frozenset({str, int, float, bytes, bool, type(None), type, FunctionType, ModuleType})
_owners: WeakSet[Any] = WeakSet()
_process = os.getpid()


def renew_in_child(owner: object) -> None:
    """Give an object, and all of delayq and redis-py that it can reach, new locks in each process forked from this."""
    _owners.add(owner)


def heed_fork() -> None:
    """Do this now, if this process was forked without telling Python, as some servers do."""
    if _process != os.getpid():
        _in_child()


def _in_child() -> None:
    """Renew the locks. It takes some milliseconds, and a third of one more for each queue that is connected."""
    global _process  # noqa: PLW0603
    _process = os.getpid()
    made: dict[int, tuple[Any, Any]] = {}  # by what it replaces, which several objects may share
    todo, seen = list(_owners), set[int]()
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] in _OURS and isinstance(module, ModuleType):
            todo += _renewed(module, vars(module), made)
    while todo:
        each = todo.pop()
        kind: Any = type(each)  # not isinstance, which would run the code of lazy objects
        if kind in _PLAIN or id(each) in seen:
            continue
        seen.add(id(each))
        if issubclass(kind, dict):
            todo += each.values()
        elif issubclass(kind, list | tuple | set | frozenset | deque):
            todo += each
        elif _is_ours(kind):
            todo += _renewed(each, dict(_attributes(each)), made)


@cache
def _is_ours(kind: Any) -> bool:
    return any(str(each.__module__).partition(".")[0] in _OURS for each in kind.__mro__)


def _attributes(each: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(each, "__dict__", {}).items()
    for kind in type(each).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(each, name):
                yield name, getattr(each, name)


def _renewed(owner: object, attributes: dict[str, Any], made: dict[int, tuple[Any, Any]]) -> list[Any]:
    """Renew the locks among the attributes of an object; return what else they hold."""
    others = []
    for name, value in tuple(attributes.items()):
        make = _MAKERS.get(type(value))
        if make is None:
            others.append(value)
        else:
            with suppress(Exception):  # an odd object must not keep the others from getting theirs
                setattr(owner, name, made.setdefault(id(value), (value, make()))[1])
    return others


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)
