"""How long to wait for a server that is unavailable or refuses a step."""

from __future__ import annotations

import time
from collections.abc import Callable

from delayq.errors import ServerNotReady, ServerUnreachable, StoreError
from delayq.log import log
from delayq.model.interval import Interval

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # seconds: a server that is back is noticed within the longer one
TELL_SECONDS = 60.0


class Outage:
    """Decides how long to wait when the server is unavailable or refuses a step, longer each time.

    The log has a line when an outage begins, one every minute while it lasts, and one when it ends. A refusal is logged
    as such, since a server that answers is not away. Each is logged at most once a minute, since other steps may
    succeed in between; the end of an outage that was not logged is not logged either.

    Args:
        clock: monotonic, in seconds.
        labels: fields of the log lines: the queue or topic.

    Attributes:
        is_away: the server was unavailable at the last step, rather than that it refused.
        is_cut_off: a call at the end of a run has failed, so the others are not tried.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, **labels: str) -> None:
        self._labels = labels
        self._tell_outage = Interval(TELL_SECONDS, clock)
        self._tell_refusal = Interval(TELL_SECONDS, clock)
        self._pause = FIRST_PAUSE
        self.is_away = self._is_logged = self.is_cut_off = False

    @property
    def is_tried(self) -> bool:
        """Whether the last step failed."""
        return self._pause != FIRST_PAUSE

    def lost(self, error: Exception) -> float:
        """Note that a step failed; return the seconds until the next try."""
        self.is_away = isinstance(error, ServerUnreachable | StoreError) or (
            self.is_away and isinstance(error, ServerNotReady)  # it has restarted, and is loading its data
        )
        if (self._tell_outage if self.is_away else self._tell_refusal).due():
            self._is_logged = True
            if self.is_away:
                log.warning("redis unavailable, retrying", **self._labels, error=str(error))
            else:
                log.error("redis refused, retrying", **self._labels, error=str(error))
        pause = self._pause
        self._pause = min(LONGEST_PAUSE, pause * 2)
        return pause

    def served(self) -> None:
        """Note that a step succeeded."""
        if self._is_logged:
            log.info("redis available again" if self.is_away else "redis accepts again", **self._labels)
        self.is_away = self._is_logged = False
        self._pause = FIRST_PAUSE
