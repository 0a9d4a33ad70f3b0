"""What happens when, on a virtual clock: only the seed decides the order."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from typing import TypeAlias

Event: TypeAlias = Callable[[], None]

EPOCH_US = 1_700_000_000_000_000
"""The time of the server's clock when a simulation begins, in microseconds."""


class Now(str):
    """The server's time, ms, in a call that has not arrived yet; it is filled in when the server runs the call."""

    __slots__ = ()

    def __str__(self) -> str:  # a call turns its words into texts
        return self


class Schedule:
    """Events ordered by time; the seed decides the order of those at the same time.

    Attributes:
        dice: the random generator, from the seed.
        us: microseconds since the start.
        step_us: by how much the server's clock was set forward, or back if negative.
        stepped: when that was, in microseconds since the start.
        latest_us: the latest time that the server's clock showed before it was set.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.us = 0
        self.step_us = self.stepped = 0
        self.latest_us = 0
        self._events: list[tuple[int, float, int, Event]] = []
        self._count = 0

    @property
    def server_us(self) -> int:
        """The server's time in microseconds."""
        return EPOCH_US + self.us + self.step_us

    def step(self, us: int) -> None:
        """Set the server's clock."""
        self.latest_us = max(self.latest_us, self.server_us)
        self.step_us += us
        self.stepped = self.us

    def now(self) -> Now:
        """Return the server's time, for a queue's `clock`."""
        return Now(str(self.server_us / 1000))

    def after(self, us: float, event: Event) -> None:
        """Schedule an event in `us` microseconds."""
        self._count += 1
        at = self.us + max(0, math.ceil(us))
        heapq.heappush(self._events, (at, self.dice.random(), self._count, event))

    def run(self, is_over: Callable[[], bool]) -> None:
        """Let time pass until a condition holds, or no event is left."""
        while self._events and not is_over():
            at, _, _, event = heapq.heappop(self._events)
            self.us = max(self.us, at)
            event()
