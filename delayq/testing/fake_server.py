"""The server in memory: fakeredis, which runs the real scripts in a Lua of its own."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

from redis import Redis


@contextmanager
def fake_server() -> Iterator[Redis]:
    """Start a server within this process, and yield a client of it.

    Raises:
        ModuleNotFoundError: fakeredis, or lupa, is not installed.
    """
    try:
        import fakeredis  # noqa: PLC0415  # an extra

        importlib.import_module("lupa")  # without it, fakeredis runs no scripts
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"delayq.testing needs {missing.name}, which is not installed: pip install 'delayq[testing]'",
            name=missing.name,
        ) from missing
    with fakeredis.FakeRedis(server=fakeredis.FakeServer()) as client:
        yield client
