"""The wait of a pull-style receiver for its queue's next message."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from functools import partial
from typing import TypeVar

from delayq import crew
from delayq.aio import bell
from delayq.aio.connection import Client, Connection
from delayq.calls import Steps
from delayq.errors import ServerError
from delayq.operations import appearing, resting
from delayq.operations.core import Core
from delayq.pace import FALLBACK_MS
from delayq.running import consumer_name

T = TypeVar("T")


class Waiter:
    """Waits for a queue's next message, as one of all that wait for it; for one task at a time."""

    def __init__(self, core: Core, connection: Connection) -> None:
        self._core = core
        self._connection = connection
        self.name = consumer_name(secrets.token_hex(4))
        self._presence = appearing.Presence(core, partial(crew.describe, 0, time.monotonic()))
        self._bells: list[bell.Bell] = []
        self._client: Client | None = None  # theirs
        self._events: asyncio.AbstractEventLoop | None = None  # likewise
        self._until = 0.0
        self._promised = False

    def taking(self, claim: Steps[T]) -> Steps[T]:
        """Return a claim; when it is time, one that takes along the note that this receiver lives."""
        return self._presence.beside(claim, self.name)

    async def begin(self, seconds: float, held: bool = False) -> None:
        """Listen, and ask for the time of the next event within `seconds`; `held` is as in `resting.rest`."""
        client = await self._connection.connected()
        if client is not self._client or len(self._bells) != len(self._core.shards):
            await self.close()
            self._client, self._events = client, asyncio.get_running_loop()
            self._bells = [bell.Bell(client, scripts.keys.bell) for scripts in self._core.shards]
        for each in self._bells:
            await each.listen()
        most = min(FALLBACK_MS, max(1, int(seconds * 1000)))
        self._promised = True  # should this be cancelled, the server may know of it all the same
        self._until = time.monotonic() + most / 1000
        self._until, self._promised, _ = await self._connection.do(resting.rest(self._core, self.name, most, held))

    async def wait(self, seconds: float) -> None:
        """Return when there may be work, after at most `seconds` or the fallback time."""
        await bell.wait(self._bells, min(self._until - time.monotonic(), seconds))
        for each in self._bells:
            await each.rang()

    async def end(self) -> None:
        """Stop listening, and let others know of what this receiver will not look after."""
        tokens = [await each.hush() for each in self._bells]
        if self._client is not None:
            await self._connection.leave(self._client)
        promised, self._promised = self._promised and time.monotonic() < self._until, False
        if any(tokens) or promised:
            with contextlib.suppress(ServerError):  # the fallback poll of the others makes up for it
                await self._connection.do(resting.pass_on(self._core, self.name))

    async def close(self) -> None:
        """Give the blocked connections up."""
        bells, self._bells = self._bells, []
        if self._events is asyncio.get_running_loop():  # else they were closed with theirs
            for each in bells:
                await each.close()
