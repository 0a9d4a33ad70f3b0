"""The start of a consumer whose server may not be up yet, as when a machine boots."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from delayq.aio import Queue as AsyncQueue
from delayq.errors import ServerNotReady, ServerUnreachable
from delayq.queue import Queue
from delayq.runtime.outage_backoff import OutageBackoff

T = TypeVar("T")


def when_served(run: Callable[[], T], reach: Callable[[], object], waits: bool) -> T:
    """Run what needs the server to begin with; when it does not answer, again and again until it does.

    SIGTERM and SIGINT end the process meanwhile, with exit code 0: nothing has begun.

    Args:
        reach: asks the server for something, to say that it is back before `run` begins.
        waits: else its error is raised at once.
    """
    outage = OutageBackoff()
    while True:
        try:
            if outage.is_tried:
                reach()
                outage.served()
            return run()
        except (ServerUnreachable, ServerNotReady) as error:
            if not waits:
                raise
            for number in (signal.SIGTERM, signal.SIGINT):  # the first process of a container has no default for them
                signal.signal(number, lambda *_: sys.exit(0))
            time.sleep(outage.lost(error))


def ask(queue: Queue | AsyncQueue) -> None:
    """Ask the server of a queue for something."""
    if isinstance(queue, AsyncQueue):
        asyncio.run(_ask(queue))
    else:
        queue.configuration()


async def _ask(queue: AsyncQueue) -> None:
    async with queue:  # its connections belong to this event loop
        await queue.configuration()
