"""The wait of a pull-style receiver for its queue's next message."""

from __future__ import annotations

import contextlib
import os
import secrets
import time

from delayq import bell
from delayq.connection import Connection
from delayq.errors import ServerError
from delayq.operations import resting
from delayq.operations.core import Core
from delayq.pace import FALLBACK_MS


class Waiter:
    """Waits for a queue's next message, as one of all that wait for it."""

    def __init__(self, core: Core, connection: Connection) -> None:
        self._core = core
        self._connection = connection
        self._token = secrets.token_hex(4)
        self._bells: list[bell.Bell] = []
        self._until = 0.0
        self._promised = False

    def begin(self, seconds: float, held: bool = False) -> None:
        """Listen, and ask for the time of the next event within `seconds`; `held` is as in `resting.rest`."""
        if len(self._bells) != len(self._core.shards):
            self.close()
            self._bells = [bell.Bell(self._connection.client, scripts.keys.bell) for scripts in self._core.shards]
        for each in self._bells:
            each.listen()
        most = min(FALLBACK_MS, max(1, int(seconds * 1000)))
        self._until, self._promised, _ = self._connection.do(resting.rest(self._core, self._name(), most, held))

    def wait(self, seconds: float) -> None:
        """Return when there may be work, after at most `seconds` or the fallback time."""
        bell.wait(self._bells, min(self._until - time.monotonic(), seconds))
        for each in self._bells:
            each.rang()

    def end(self) -> None:
        """Stop listening, and let others know of what this receiver will not look after."""
        tokens = [each.hush() for each in self._bells]
        promised, self._promised = self._promised and time.monotonic() < self._until, False
        if any(tokens) or promised:
            with contextlib.suppress(ServerError):  # the fallback poll of the others makes up for it
                self._connection.do(resting.pass_on(self._core, self._name()))

    def _name(self) -> str:
        return f"{os.getpid()}-{self._token}"

    def close(self) -> None:
        """Give the blocked connections up."""
        for each in self._bells:
            each.close()
