"""The server in memory: fakeredis, which runs the real scripts in its own Lua."""

from __future__ import annotations

import importlib
from typing import Any


class FakeServer:
    """A server within this process.

    Raises:
        ModuleNotFoundError: fakeredis, or lupa, is not installed.
    """

    def __init__(self) -> None:
        try:
            self._fakeredis = importlib.import_module("fakeredis")  # an extra
            importlib.import_module("lupa")  # without it, fakeredis runs no scripts
        except ModuleNotFoundError as missing:
            raise ModuleNotFoundError(
                f"delayq.testing needs {missing.name}, which is not installed: pip install 'delayq[testing]'",
                name=missing.name,
            ) from missing
        self._server = self._fakeredis.FakeServer()

    def client(self, kind: str) -> Any:
        """Return a new client, of the given class of fakeredis."""
        return getattr(self._fakeredis, kind)(server=self._server)
