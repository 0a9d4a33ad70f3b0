"""How a consumer waits for a server that is away, or refuses it."""

from __future__ import annotations

from delayq.errors import LoginRefused
from delayq.log import log

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds: a server that is back is noticed within the longest


class Patience:
    """Says for how long to wait when the server is away, longer each time. The outage is told once, and its end.

    A right that lacks is waited for likewise, as somebody may yet grant it; but nobody is to look for an outage.

    Args:
        labels: what the log lines carry: which queue it is, or which topic.
    """

    def __init__(self, **labels: str) -> None:
        self._labels = labels
        self._pause = FIRST_PAUSE
        self._is_refused = False

    @property
    def is_tried(self) -> bool:
        """Whether the last step failed."""
        return self._pause != FIRST_PAUSE

    def lost(self, error: Exception) -> float:
        """Note that a step failed; return the seconds until the next try."""
        was_refused, self._is_refused = self._is_refused, isinstance(error, LoginRefused)
        if not self.is_tried or self._is_refused != was_refused:
            if self._is_refused:
                log.error("refused by the server: trying again until it allows this", **self._labels, error=str(error))
            else:
                log.warning("server away: trying again until it is back", **self._labels, error=str(error))
        pause = self._pause
        self._pause = min(LONGEST_PAUSE, pause * 2)
        return pause

    def served(self) -> None:
        """Note that a step succeeded."""
        if self.is_tried:
            log.info("server allows it now" if self._is_refused else "server is back", **self._labels)
        self._pause = FIRST_PAUSE
