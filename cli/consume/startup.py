"""Starting a consumer whose server may not be up yet, such as after a reboot."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from delayq import signals
from delayq.aio import Queue as AsyncQueue
from delayq.errors import ServerNotReady, ServerUnreachable
from delayq.model.outage import Outage
from delayq.queue import Queue

T = TypeVar("T")


def when_served(run: Callable[[], T], reach: Callable[[], object], waits: bool) -> T:
    """Call `run`, which first contacts the server; repeat it until the server answers.

    While this waits, SIGTERM and SIGINT end the process with exit code 0, since nothing has started.

    Args:
        reach: contacts the server, so that its return is logged before `run` starts.
        waits: if false, raise the server's error at once.
    """
    outage = Outage()
    while True:
        try:
            if outage.is_tried:
                with _exiting():
                    reach()
                outage.served()
            return run()
        except (ServerUnreachable, ServerNotReady) as error:
            if not waits:
                raise
            with _exiting():
                time.sleep(outage.lost(error))


@contextlib.contextmanager
def _exiting() -> Iterator[None]:
    """Exit with code 0 on a signal: nothing has started."""
    with signals.handled(lambda *_: sys.exit(0), (signal.SIGTERM, signal.SIGINT)):
        yield


def ask(queue: Queue | AsyncQueue) -> None:
    """Contact the server of a queue."""
    if isinstance(queue, AsyncQueue):
        asyncio.run(_ask(queue))
    else:
        queue.configuration()


async def _ask(queue: AsyncQueue) -> None:
    async with queue:  # its connections belong to this event loop
        await queue.configuration()
