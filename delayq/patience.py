"""How a consumer waits for a server that is away."""

from __future__ import annotations

from delayq.log import log

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds: a server that is back is noticed within the longest


class Patience:
    """Says for how long to wait when the server is away, longer each time. The outage is told once, and its end.

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

    def lost(self, error: Exception) -> float:
        """Note that a step failed; return the seconds until the next try."""
        if not self.is_tried:
            log.warning("server away: trying again until it is back", queue=self._queue, error=str(error))
        pause = self._pause
        self._pause = min(LONGEST_PAUSE, pause * 2)
        return pause

    def served(self) -> None:
        """Note that a step succeeded."""
        if self.is_tried:
            log.info("server is back", queue=self._queue)
        self._pause = FIRST_PAUSE
