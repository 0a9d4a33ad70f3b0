"""The clock by which this process knows how long a lease lasts."""

from __future__ import annotations

import time

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def lease_now() -> float:
    """Return the seconds on a clock that cannot be set and that includes the time the machine sleeps.

    On Linux, `time.monotonic` leaves out sleep: a lease that ended during a sleep would seem to last.
    """
    return time.clock_gettime(_CLOCK)
