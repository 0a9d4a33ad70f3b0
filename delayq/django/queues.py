"""The queues of the backends: one object for each in a process, which its threads share.

``delayq consume`` finds them in this module: ``delayq.django.queues:ALIAS/NAME``, where both are percent-encoded.
"""

from __future__ import annotations

import os
import threading
from typing import Any
from urllib.parse import quote, unquote

import django
from django.apps import apps

from delayq import Queue
from delayq.django.framework import task_backends
from delayq.django.options import Options
from delayq.django.runs import Runs

_made: dict[tuple[str, str, Options], Queue] = {}
_lock = threading.Lock()


def _begin_in_child() -> None:
    """Forget the parent's queues, whose threads and locks a forked process does not have."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _made.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_begin_in_child)


def queue_of(alias: str, name: str, options: Options) -> Queue:
    """Return the queue of a backend; it connects at its first call.

    Args:
        alias: of the backend.
        name: of the queue.

    Raises:
        InvalidInput: the name or an option is invalid.
    """
    key = alias, name, options
    with _lock:
        if key not in _made:
            made = Queue(name, url=options.url, prefix=options.prefix)
            _made[key] = made
            Runs(alias, made).install()
        return _made[key]


def target(alias: str, name: str) -> str:
    """Return the TARGET of ``delayq consume`` for a queue of a backend."""
    return f"{__name__}:{'/'.join(quote(each, safe='').replace('.', '%2E') for each in (alias, name))}"


def __getattr__(name: str) -> Any:
    alias, slash, queue = name.partition("/")
    if not slash:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not apps.ready:
        django.setup()
    found = task_backends[unquote(alias)].queue(unquote(queue))
    globals()[name] = found  # a pool process imports it from here
    return found
