"""What may be used on one event loop at a time."""

from __future__ import annotations

import asyncio
import threading

from delayq.errors import InvalidInput

_entry = threading.Lock()  # two threads may come first at the same time


class LoopBound:
    """Belongs to the event loop that uses it first, until it is closed or that loop has closed."""

    _loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> None:
        """Begin a call: raise InvalidInput if it is in use on another event loop, forget one that has closed."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        with _entry:
            if self._loop is not None and self._loop is not loop:
                if not self._loop.is_closed():
                    raise InvalidInput(
                        f"{self!r} is in use on another event loop: close it there, or make one for each event loop"
                    )
                self.forget()  # as after asyncio.run, whose loop has closed its sockets
            self._loop = loop

    def forget(self) -> None:
        """Drop what belongs to its event loop."""
        raise NotImplementedError
