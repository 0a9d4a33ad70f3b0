"""Tells a task that it need not wait longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any


class Notice:
    """An event that is waited for with a timeout, by one task."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    async def wait(self, seconds: float) -> None:
        """Return when it is given, or after `seconds`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()

    def give(self) -> None:
        """End the wait, or the next one."""
        self._event.set()


def belongs(executor: Any, forget: Callable[[], None]) -> None:
    """Call `forget` when the executor is used on another event loop."""
    executor.belongings.append(forget)
