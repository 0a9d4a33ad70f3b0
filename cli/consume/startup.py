"""The start of a consumer whose server may not be up yet, as when a machine boots."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from delayq.errors import ServerNotReady, ServerUnreachable
from delayq.runtime.outage_backoff import OutageBackoff

T = TypeVar("T")


def when_served(run: Callable[[], T], waits: bool) -> T:
    """Run what needs the server to begin with; when it does not answer, again and again until it does.

    SIGTERM and SIGINT end the process meanwhile, with exit code 0: nothing has begun.

    Args:
        waits: else its error is raised at once.
    """
    outage = OutageBackoff()
    while True:
        try:
            return run()
        except (ServerUnreachable, ServerNotReady) as error:
            if not waits:
                raise
            for number in (signal.SIGTERM, signal.SIGINT):  # the first process of a container has no default for them
                signal.signal(number, lambda *_: sys.exit(0))
            time.sleep(outage.lost(error))
