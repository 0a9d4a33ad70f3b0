"""Looks for ended leases, and signs that their holders could not renew them."""

from __future__ import annotations

import math

from delayq.model.lease_clock import lease_now
from delayq.protocol.command import Command
from delayq.protocol.queue_commands import QueueCommands

SLACK_MS = 3000
KNOWN_SECONDS = 600.0
DRIFT_MS = 120  # two clocks that are each wrong by 100 ppm differ by this after KNOWN_SECONDS


class Watch:
    """The looks of one client for ended leases, on each shard.

    A look says by when the server should execute it. If the server executes it later, it was frozen, or its clock was
    set forward; if an earlier look had no answer, the server was away. Then the script begins a grace, in which the
    holders of leases can renew them (`look` in `lua/prelude.lua`, decision 47).

    Args:
        lease_ms: of the client. A lease has half of its time left at least, and a delay of two fifths may be missed.
        is_virtual: whether the scripts use another clock than the server's, on which no call is late.
    """

    def __init__(self, lease_ms: int, is_virtual: bool) -> None:
        self._is_virtual = is_virtual
        self._slack_ms = min(SLACK_MS, lease_ms / 5)
        self._unanswered: dict[str, float] = {}  # since when, by `lease_now`
        self._known: dict[str, tuple[int, float]] = {}  # a time of the server, ms, and when it was asked for
        self._grace: dict[str, float] = {}  # until when, by `lease_now`
        self._held_back: dict[str, float] = {}

    def look(self, scripts: QueueCommands, is_consumer: bool) -> Command[int]:
        """Return the call that takes deliveries back whose lease ended.

        Args:
            is_consumer: whether the caller looks every second.
        """
        shard, asked = scripts.keys.meta, lease_now()

        def read(reply: list[int]) -> int:
            count, now, grace, is_held_back = reply
            self.heard(shard, asked, now, grace)
            self._held_back[shard] = lease_now() + (0 if self._is_virtual else grace / 1000 * is_held_back)
            return count

        return scripts.unack_to_retry(by_ms=self.by(shard), is_consumer=is_consumer, read=read)

    def by(self, shard: str) -> int | str:
        """Note that a call is about to be sent.

        Returns:
            the server's time, ms, by which it should be executed; "" if unknown, 0 if the server was away before.
        """
        asked = lease_now()
        unanswered = self._unanswered.setdefault(shard, asked)
        if self._is_virtual:
            return ""
        if (asked - unanswered) * 1000 > self._slack_ms:
            return 0
        return self._server_ms(shard, asked, self._slack_ms)

    def claims_by(self, shard: str) -> int | str:
        """Return the server's time, ms, by which a claim that is sent now should be executed; "" if unknown."""
        return "" if self._is_virtual else self._server_ms(shard, lease_now(), SLACK_MS)

    def _server_ms(self, shard: str, now: float, later_ms: float) -> int | str:
        server_ms, then = self._known.get(shard, (0, 0.0))
        if not server_ms or now - then > KNOWN_SECONDS:
            return ""
        return server_ms + int((now - then) * 1000 + later_ms)

    def asks(self, shard: str) -> float:
        """Note that a call other than a look is about to be sent; return what to pass to `answered`."""
        asked = lease_now()
        self._unanswered.setdefault(shard, asked)
        return asked

    def answered(self, shard: str, asked: float | None = None) -> None:
        """Note that a look, or the call that was made at `asked`, was answered: others may still have failed before."""
        if asked in (None, self._unanswered.get(shard)):
            self._unanswered.pop(shard, None)

    def heard(self, shard: str, asked: float, now_ms: int, grace_ms: int) -> None:
        """Note the answer to a call that was made at `asked`: the server's time and how much is left of a grace."""
        answered = lease_now()
        self.answered(shard)
        if (answered - asked) * 1000 < self._slack_ms:
            self._known[shard] = now_ms, asked
        elif isinstance(latest := self._server_ms(shard, answered, DRIFT_MS), int) and now_ms > latest:
            self.forget(shard)  # its clock was set forward: it would execute every call too late
        self._grace[shard] = answered + grace_ms / 1000

    def forget(self, shard: str) -> None:
        """Forget what time it is on the server: it was frozen, or its clock was set forward."""
        self._known.pop(shard, None)

    def missed(self, *shards: str) -> None:
        """Note that the server was away: the next look begins a grace."""
        self._unanswered.update(dict.fromkeys(shards, -math.inf))

    @property
    def is_grace(self) -> bool:
        """Whether holders should renew all their leases now."""
        return self.grace > 0

    @property
    def grace(self) -> float:
        """The seconds left of a grace; 0 if there is none."""
        return max(0.0, max(tuple(self._grace.values()), default=0.0) - lease_now())

    @property
    def held_back(self) -> float:
        """The seconds until messages come back whose leases have ended and are left to their holders; 0 if none do."""
        return max(0.0, max(tuple(self._held_back.values()), default=0.0) - lease_now())
