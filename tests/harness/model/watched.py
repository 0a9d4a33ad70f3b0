"""How looks for ended leases are noted, in plain Python; `look` in lua/prelude.lua is the same in Lua."""

from __future__ import annotations

GAP_MS, GRACE_MS = 3000, 6000


class Watched:
    """The looks at one shard.

    Attributes:
        seen: when a consumer last looked, ms; 0 if none is at work.
        start, end: of the last grace, ms.
    """

    def __init__(self) -> None:
        self.seen = self.start = self.end = 0

    def look(self, now: int, is_consumer: bool) -> tuple[int, int]:
        """Return the time, ms, by which a lease must have ended to be taken back, and the rest of a grace, ms."""
        left = self.end - now if self.end - now <= GRACE_MS else 0  # otherwise from before the clock was set back
        gap = now < self.seen or now > self.seen + GAP_MS
        begins = self.seen > 0 and gap
        if begins:
            self.start = min(now, self.start if self.seen < self.end else self.seen)
            self.end, left = now + GRACE_MS, GRACE_MS
        if begins or (is_consumer and now > self.seen + 200):
            self.seen = now if is_consumer else 0
        return (min(now, self.start) if left > 0 else now), max(0, left)

    def counts(self, lease_end: int) -> int:
        """Return when a lease counts as ended, ms."""
        return max(lease_end, self.end) if lease_end > self.start else lease_end
