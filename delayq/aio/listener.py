"""The wait of a topic's readers for what comes next, of the async face."""

from __future__ import annotations

import time
from collections.abc import Sequence

from delayq.aio import bell
from delayq.aio.connection import Client, Connection
from delayq.pace import FALLBACK_MS
from delayq.topics.core import TopicCore
from delayq.topics.publishing import append_due


class Listener:
    """Waits for a topic's next record, and appends those whose time comes meanwhile; for one task."""

    def __init__(self, core: TopicCore, connection: Connection) -> None:
        self._core = core
        self._connection = connection
        self._bells: list[bell.StreamBell] = []
        self._client: Client | None = None  # theirs

    async def wait(self, lasts: Sequence[str], seconds: float) -> None:
        """Return when there may be a record behind one of `lasts`, a shard; after at most `seconds`, or a second.

        A time that has come is seen at once, whatever `seconds` says: the caller looks once more.
        """
        waiting = await self._connection.do(append_due(self._core))
        shards = self._core.shards
        if len(lasts) != len(shards):  # the topic was made meanwhile, with more of them: the caller looks once more
            return
        client = await self._connection.connected()
        if client is not self._client or len(self._bells) != len(shards):
            await self.close()
            self._client = client
            self._bells = [bell.StreamBell(client, each.keys.stream, each.keys.waking) for each in shards]
        for each, last, seen in zip(self._bells, lasts, waiting.seen, strict=True):
            each.seen = (last, seen)
            await each.listen()
        end = time.monotonic() + min(seconds, FALLBACK_MS / 1000)
        if waiting.next_ms is not None:
            end = min(end, time.monotonic() + waiting.next_ms / 1000)
        await bell.wait(self._bells, end - time.monotonic())
        for each in self._bells:
            await each.rang()

    async def close(self) -> None:
        """Give the blocked connections up."""
        bells, self._bells = self._bells, []
        for each in bells:
            await each.close()
