"""Tells a task that it need not wait longer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from delayq.runtime import notice


class Notice(notice.Notice):
    """The same for a task."""

    make = asyncio.Event

    async def wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


def belongs(executor: Any, forget: Callable[[], None]) -> None:
    """Call `forget` when the executor is used on another event loop."""
    executor.belongings.append(forget)
