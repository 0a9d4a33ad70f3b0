"""How a consumer waits for a server that is away."""

from __future__ import annotations

import time
from collections.abc import Callable

from delayq.errors import ServerError, StoreError
from delayq.log import log

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds: a server that is back is noticed within the longest


class Patience:
    """Tries a step; when the server is away, waits a little, longer each time. The outage is told once, and its end.

    Args:
        queue: the name that the log lines carry.
    """

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._pause = FIRST_PAUSE

    @property
    def is_tried(self) -> bool:
        """Whether the last step failed."""
        return self._pause != FIRST_PAUSE

    def tries(self, step: Callable[[], None]) -> bool:
        """Do a step; return whether the server served."""
        try:
            step()
        except (ServerError, StoreError) as error:
            if not self.is_tried:
                log.warning("server away: trying again until it is back", queue=self._queue, error=str(error))
            time.sleep(self._pause)
            self._pause = min(LONGEST_PAUSE, self._pause * 2)
            return False
        if self.is_tried:
            log.info("server is back", queue=self._queue)
        self._pause = FIRST_PAUSE
        return True
