"""When a stream that waits for enough entries reads those that are there."""

from __future__ import annotations

import time
from collections.abc import Mapping

from delayq.errors import InvalidInput
from delayq.spark.reading.options import called, seconds_of, whole

MOST_ENTRIES = 10**12
DELAY = 900.0  # seconds, as in Kafka's connector


class TriggerLimits:
    """How many entries a batch has, at most and at least; see `minEntriesPerTrigger` in ``docs/spark.md``.

    The first batch of a query is not held back.

    Attributes:
        most: the most entries of a batch; None for all.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.most = whole(options, "maxEntriesPerTrigger", MOST_ENTRIES)
        self._least = whole(options, "minEntriesPerTrigger", MOST_ENTRIES) or 0
        self._delay = seconds_of(options, "maxTriggerDelay", DELAY)
        if "maxTriggerDelay" in options and not self._least:
            raise InvalidInput(f'{called(options, "maxTriggerDelay")} needs the option "minEntriesPerTrigger"')
        if self.most is not None and self._least > self.most:
            raise InvalidInput(
                f"{called(options, 'minEntriesPerTrigger')} is {self._least}, more than the {self.most} of "
                f"{called(options, 'maxEntriesPerTrigger')}"
            )
        self._until = 0.0

    def holds_back(self, available: int) -> bool:
        """Whether to wait for more entries; otherwise the time begins again, as a batch follows if there are any."""
        if available < self._least and time.monotonic() < self._until:
            return True
        if available:
            self._until = time.monotonic() + self._delay
        return False
