"""The queues of the backends: one object for each in a process, which its threads share.

``delayq consume`` finds them in this module: ``delayq.django.queues:ALIAS/NAME``, where both are percent-encoded.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, unquote

import django
from django.apps import apps

from delayq import Queue
from delayq.django.framework import task_backends
from delayq.django.options import Options
from delayq.django.results import LEASE
from delayq.django.runs import Runs

_made: dict[tuple[str, str, Options], Queue] = {}
_lock = threading.Lock()  # a forked process gets a lock of its own; the queues stay, with their middleware


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
        return _made[key] if key in _made else _keep(key, _make(name, options))


@contextmanager
def looked_into(alias: str, name: str, options: Options) -> Iterator[Queue]:
    """Give a queue of a backend, to look for a message; one that is new is kept only if the block does not raise.

    Otherwise each name that a stranger gives would leave a queue and its connections.
    """
    key = alias, name, options
    found = _made.get(key)
    if found is not None:
        yield found
        return
    made = _make(name, options)
    try:
        yield made
    except BaseException:
        made.close()
        raise
    with _lock:
        if key in _made:
            made.close()
        else:
            _keep(key, made)


def _make(name: str, options: Options) -> Queue:
    return Queue(name, url=options.url, prefix=options.prefix, lease=LEASE)


def _keep(key: tuple[str, str, Options], made: Queue) -> Queue:
    Runs(key[0], made).install()
    return _made.setdefault(key, made)


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
