"""How long a failed message waits for its next attempt.

A backoff is a callable: it takes the number of the attempt that failed (1 or more) and returns seconds.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeAlias

from delayq.errors import InvalidTime
from delayq.model.units import Seconds, milliseconds

Backoff: TypeAlias = Callable[[int], float]


def fixed(seconds: Seconds) -> Backoff:
    """Wait the same time before each attempt."""
    wait = _seconds(seconds, "seconds")
    return lambda _: wait


def linear(base: Seconds = 1, step: Seconds = 1, maximum: Seconds = 3600) -> Backoff:
    """Wait `base` seconds after the first failure, and `step` more after each further one, at most `maximum`."""
    first, more, most = _seconds(base, "base"), _seconds(step, "step"), _seconds(maximum, "maximum")
    return lambda attempt: min(most, first + more * (attempt - 1))


def exponential(base: Seconds = 1, factor: float = 2, maximum: Seconds = 3600, jitter: float = 0.1) -> Backoff:
    """Wait `base` seconds after the first failure, `factor` times as long after each further one.

    Args:
        factor: 1 or more.
        maximum: the longest wait, before the jitter.
        jitter: 0 to 1, the share by which each wait is made longer or shorter at random, so that messages that
            failed together do not come back together.
    """
    first, most = _seconds(base, "base"), _seconds(maximum, "maximum")
    if not isinstance(factor, int | float) or not factor >= 1:
        raise InvalidTime(f"factor {factor!r} is not 1 or more")
    if not isinstance(jitter, int | float) or not 0 <= jitter <= 1:
        raise InvalidTime(f"jitter {jitter!r} is not between 0 and 1")

    def wait(attempt: int) -> float:
        try:
            seconds = min(most, first * factor ** (attempt - 1))
        except OverflowError:
            seconds = most
        return seconds * (1 + jitter * random.uniform(-1, 1))

    return wait


def sequence(waits: Sequence[Seconds]) -> Backoff:
    """Wait the times of a list in turn, and the last one from then on."""
    if isinstance(waits, str) or not isinstance(waits, Sequence):
        raise InvalidTime(f"waits {waits!r} are no list of times")
    if not waits:
        raise InvalidTime("a sequence of waits must not be empty: give at least one")
    seconds = [_seconds(wait, "wait") for wait in waits]
    return lambda attempt: seconds[min(attempt, len(seconds)) - 1]


def _seconds(value: Seconds, what: str) -> float:
    return milliseconds(value, what) / 1000


DEFAULT_RETRIES = 5
DEFAULT_BACKOFF = exponential(base=10, factor=3, maximum=3600, jitter=0.1)
"""With these retries: 10 s, 30 s, 90 s, 4.5 min and 13.5 min, about 20 minutes in all."""
