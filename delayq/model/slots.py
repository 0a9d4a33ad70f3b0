"""The slots of a schedule: the times of its expression between its start and its end, each delayed by its jitter."""

from __future__ import annotations

from hashlib import blake2b

from delayq.model.cron_expression import Recurrence
from delayq.model.units import MAX_TIME_MS


class Slots:
    """When a schedule fires.

    A slot depends only on its nominal time and the schedule, so all programs compute the same one. It is earlier than
    the next nominal time, so slots keep the order of nominal times.

    Args:
        nominal: the times of the expression.
        start_ms: leave out earlier times.
        end_ms: leave out times that are later, with their jitter.
        jitter_ms: delay each time by less than this.
        seed: gives each schedule its own delays.
    """

    def __init__(
        self, nominal: Recurrence, start_ms: int | None, end_ms: int | None, jitter_ms: int, seed: str
    ) -> None:
        self._nominal = nominal
        self._before_start = (start_ms or 0) - 1
        self._end_ms = MAX_TIME_MS if end_ms is None else end_ms
        self._jitter_ms = jitter_ms
        self._seed = seed

    def after(self, ms: int) -> int | None:
        """Return the first slot later than `ms`, in milliseconds since 1970; None if there is none."""
        # Of the past nominal times, only the last one can have a slot that is still to come.
        last, until = self._after(max(ms - self._jitter_ms, self._before_start)), ms
        if last > ms:
            return self._slot(last)
        while (following := self._after(last)) <= ms:  # no nominal time lies between `until` and `ms`
            middle = (following + until) // 2
            later = self._after(middle)
            last, until = (later, until) if later <= ms else (following, middle)
        slot = self._slot(last, following)
        return slot if slot is not None and slot > ms else self._slot(following)

    def nominally_after(self, ms: int) -> int | None:
        """Return the first slot whose nominal time is later than `ms`; None if there is none."""
        return self._slot(self._after(max(ms, self._before_start)))

    def _after(self, ms: int) -> int:
        following = self._nominal.after(ms)
        return MAX_TIME_MS + 1 if following is None else following

    def _slot(self, nominal: int, following: int | None = None) -> int | None:
        if nominal > self._end_ms:
            return None
        if not self._jitter_ms:
            return nominal
        following = following or self._after(nominal)
        room = min(self._jitter_ms, following - nominal, self._end_ms + 1 - nominal)
        chance = blake2b(f"{self._seed}@{nominal}".encode(errors="surrogateescape"), digest_size=8).digest()
        return nominal + (int.from_bytes(chance) * room >> 64)
