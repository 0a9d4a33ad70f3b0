"""Imports of what a program may never need, at its first use.

If a process forks while another thread imports a module, the child inherits that module's lock, and nobody frees it.
So a fork waits until the imports that run within `late_import` have ended.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any

LONGEST_WAIT = 30.0  # seconds: an import takes long on a slow machine, and one may wait for the forking thread itself


class _LateImport:
    """A context in which any number of threads import, and during which no other thread forks."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running: dict[int, int] = {}  # thread -> contexts that it is in

    def __enter__(self) -> None:
        with self._changed:
            thread = threading.get_ident()
            self._running[thread] = self._running.get(thread, 0) + 1

    def __exit__(self, *_: object) -> None:
        with self._changed:
            thread = threading.get_ident()
            self._running[thread] -= 1
            if not self._running[thread]:
                del self._running[thread]
            self._changed.notify_all()

    def before_fork(self) -> None:
        """Wait for the other threads' imports, and keep new ones from starting."""
        self._changed.acquire()
        self._changed.wait_for(lambda: self._running.keys() <= {threading.get_ident()}, LONGEST_WAIT)

    def after_fork(self) -> None:
        """Let imports start again."""
        self._changed.release()

    def in_child(self) -> None:
        """Let imports start again in the child, which has only the thread that forked."""
        own = threading.get_ident()
        self._running = {own: self._running[own]} if own in self._running else {}
        self.after_fork()


def late_names(package: str, **modules: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports each of these names at its first use.

    A name that ends its module's is the module itself.
    """

    def imported(name: str) -> Any:
        if name not in modules:
            raise _unknown(package, name)
        with late_import:
            module = import_module(modules[name])
        value = module if module.__name__.endswith(f".{name}") else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return imported


def _unknown(package: str, name: str) -> Exception:
    """Return the error for a name that the package lacks, with what it is here if it is one of another queue's."""
    with late_import:
        other_libraries = import_module("delayq.model.other_libraries")  # which imports this module
    if package not in {"delayq", "delayq.aio"} or name not in other_libraries.OF_DELAYQ:
        return AttributeError(f"module {package!r} has no attribute {name!r}")
    meant: str = other_libraries.OF_DELAYQ[name]
    if meant.isidentifier() and meant not in sys.modules[package].__all__:
        meant = f"delayq.{meant}"
    text = other_libraries.no_attribute(f"module {package!r}", name, meant)
    # `from delayq import Worker` asks for the attribute from this function, which hides the text of an AttributeError.
    is_import = sys._getframe(2).f_code.co_name == "_handle_fromlist"  # noqa: SLF001  # nothing else tells the two apart
    return ImportError(text) if is_import else AttributeError(text, name=name)


late_import = _LateImport()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=late_import.before_fork,
        after_in_parent=late_import.after_fork,
        after_in_child=late_import.in_child,
    )
