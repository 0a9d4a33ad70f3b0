"""How a task of a consumer has ended: a task that raises SystemExit would end the program's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple


class Ended(NamedTuple):
    """How many messages a run has handled, and the error that ended it, or None."""

    handled: int
    error: BaseException | None = None

    def result(self) -> int:
        """Return the number of messages; raises the error."""
        if self.error is not None:
            raise self.error
        return self.handled


async def caught(run: Awaitable[int]) -> Ended:
    """Await a run; return its error instead of raising it, unless it was cancelled."""
    try:
        return Ended(await run)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001  # code that awaits the task raises it
        return Ended(0, error)
