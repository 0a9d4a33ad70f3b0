"""Renews the leases of a consumer in a separate task, so that no fetch, duty or silent shard delays it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from delayq.errors import DelayqError
from delayq.log import log


class Heartbeat:
    """Awaits a function regularly, from `start` until `stop`.

    Args:
        beat: renews the leases; if it raises, the next beat tries again.
        seconds: between two beats.
    """

    def __init__(self, beat: Callable[[], Awaitable[object]], seconds: float) -> None:
        self._beat = beat
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="delayq-heartbeat")

    async def stop(self) -> None:
        """End it now."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            try:
                await self._beat()
            except DelayqError as error:  # the next beat tries again
                log.debug("heartbeat failed", error=str(error))
            except Exception as error:  # noqa: BLE001  # without heartbeats, no lease would be renewed any more
                log.error("heartbeat failed", error=repr(error))
