"""Renews the leases of a consumer in a separate task, so that no fetch, duty or silent shard delays it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from delayq.runtime.heartbeat import AGAIN_SECONDS, note_failure


class Heartbeat:
    """Awaits a function regularly, from `start` until `stop`.

    Args:
        beat: renews the leases; if it raises, the next beat comes soon.
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
        seconds = self._seconds
        while True:
            await asyncio.sleep(seconds)
            try:
                await self._beat()
            except Exception as error:  # noqa: BLE001  # without heartbeats, no lease would be renewed
                note_failure(error)
                seconds = min(AGAIN_SECONDS, self._seconds)
            else:
                seconds = self._seconds
