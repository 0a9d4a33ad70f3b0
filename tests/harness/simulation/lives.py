"""What happened to every message: its life starts when a send stores it, and ends in exactly one way.

An id may have several lives, one after the other.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from delayq.model.delivery import Delivery
from delayq.model.envelope import parse
from tests.harness.simulation.fibers import Process
from tests.harness.simulation.schedule import Schedule


class Violation(AssertionError):
    """A rule was broken."""


@dataclass
class Life:
    """One message from its send to its end.

    Attributes:
        state: "waiting", "running", "dead", or how it ended.
        stored: when it was sent, ms.
        due: when it may be handed out next, ms.
        available: the same for a delivery that was taken back, with the grace that its lease had, ms; else 0.
        expires: when it must no longer be started, ms, or None.
        next_attempt: the number that its next delivery will have.
        released, attempts_reset, lost: as in `delayq.model.delivery.Deliveries`.
        holder: the process that received it last, at `handed`, in microseconds since the start.
        receipt: of that delivery.
        lease_end: of that delivery, in thousandths of a millisecond.
        finished: how many handlers have done its work.
        receipts: the receipts of its deliveries, and when each was handed out.
        earlier: the receipts of the lives it has replaced.
    """

    id: str
    shard: str
    body: bytes
    stored: int
    due: int
    expires: int | None
    max_retries: int
    state: str = "waiting"
    available: int = 0
    next_attempt: int = 1
    released: int = 0
    attempts_reset: int = 0
    lost: int = 0
    is_cancelled: bool = False
    holder: Process | None = None
    handed: int = 0
    receipt: str = ""
    lease_end: int = 0
    finished: int = 0
    receipts: dict[str, int] = field(default_factory=dict)
    earlier: set[str] = field(default_factory=set)

    @property
    def record(self) -> str:
        """What must be stored about its earlier deliveries."""
        return f"{self.next_attempt - 1}.{self.released}.{self.attempts_reset}.{self.lost}"


class Lives:
    """Follows each message, and fails when something happens to it that must not.

    Attributes:
        counts: how often each thing has happened.
        of_body: the lives of a payload: several if it was sent again.
        present: the lives that have not ended, by id.
    """

    def __init__(self, schedule: Schedule) -> None:
        self.counts: Counter[str] = Counter()
        self.of_body: dict[bytes, list[Life]] = {}
        self.present: dict[str, Life] = {}
        self._schedule = schedule

    # -- what the clients report ---------------------------------------------------------------------------------------

    def acknowledged(self, body: bytes) -> None:
        """Note that a producer knows its message is stored."""
        self.counts["acknowledged"] += 1
        if body not in self.of_body:
            self._tell(f"{body!r} was acknowledged, and never stored")

    def started(self, message: Delivery, strict: bool) -> None:
        """Note that a handler starts; with `strict`, its lease must not have ended.

        Not strict after the server's clock was set, because clients cannot know that.
        """
        self.counts["started"] += 1
        life = self._life_of(message)
        if life is None and self._was_replaced_at_hand_out(message):
            self.counts["replaced at the delivery"] += 1
            return
        if life is None:
            self._tell(f"unexpected: {message!r} was handed to nobody, or is another message")
            return
        strict = strict and life.receipts[message.receipt] > self._schedule.stepped
        if strict and (life.state, life.receipt) != ("running", message.receipt) and life.state != "replaced":
            self._tell(f"a handler begins on {message!r}, which is {life.state} under {life.receipt}")
        self.counts["repeated"] += life.finished > 0

    def finished(self, message: Delivery) -> None:
        """Note that a handler has done its work."""
        self.counts["finished"] += 1
        life = self._life_of(message)
        if life is not None:
            life.finished += 1

    def _was_replaced_at_hand_out(self, message: Delivery) -> bool:
        """Whether it was replaced in the millisecond of its claim, before its envelope was fetched: no client can tell.

        This is the rest of a race that delayq resolves in all other cases: see `operations.claim`.
        """
        replaced = (life for life in self.of_body.get(message.body, []) if message.receipt in life.earlier)
        return any(life.id == message.id and life.stored == int(message.handed_ms) for life in replaced)

    def _tell(self, text: str) -> None:
        """Let the simulation fail, not the current thread, which may survive all errors."""

        def fail() -> None:
            raise Violation(text)

        self._schedule.after(0, fail)

    def _life_of(self, message: Delivery) -> Life | None:
        lives = [life for life in self.of_body.get(message.body, []) if life.id == message.id]
        found = [life for life in lives if message.receipt in life.receipts]
        # Two lives of an id have the same receipt once in a thousand times, but were stored at different times.
        created = message._created_ms
        return next((life for life in found if life.stored == created), found[0] if found else None)

    def check_end(self) -> None:
        """Check, after a drain, that each message has ended properly."""
        for life in (each for lives in self.of_body.values() for each in lives):
            self.counts[f"ended {life.state}"] += 1
            if life.state in {"waiting", "running"} or (life.state == "acked" and not life.finished):
                raise Violation(
                    f"lost: {life.id} ({life.body!r}) is {life.state}, and was handled {life.finished} times"
                )

    # -- what the server does ------------------------------------------------------------------------------------------

    def begin(self, shard: str, id: str, due: int, envelope: bytes) -> Life:
        """Note that a message was stored, perhaps in place of another one."""
        created, opened = parse(b"%013d" % (self._schedule.server_us // 1000) + envelope)
        expires = None if opened.expires_ms is None else created + opened.expires_ms
        life = Life(id, shard, opened.body, created, due, expires, opened.max_retries)
        before = self.present.get(id)
        if before is not None:
            life.next_attempt = before.next_attempt + (before.state == "running")
            life.earlier = before.earlier.union(before.receipts)
            life.released, life.attempts_reset = before.released, life.next_attempt - 1
            if before.state == "running" and before.holder is not None:
                before.holder.serves_since = None  # its handler keeps running, and nobody knows when it is idle again
            self.end(before, "replaced")
        self.present[id] = life
        self.of_body.setdefault(life.body, []).append(life)
        self.counts["stored"] += 1
        return life

    def hand_out(self, life: Life, process: Process, receipt: str, lease_end: int) -> None:
        """Note that a process received a message."""
        life.state, life.holder, life.handed, life.receipt = "running", process, self._schedule.us, receipt
        life.lease_end, life.available = lease_end, 0
        life.receipts[receipt] = self._schedule.us
        process.held += 1
        self.counts["delivered"] += 1

    def wait(self, life: Life, due: int, counted: bool) -> None:
        """Let a message wait after a delivery, or end it if it was cancelled meanwhile."""
        if life.is_cancelled:
            self.end(life, "cancelled")
            return
        self._take_back(life)
        life.state, life.due = "waiting", due
        life.next_attempt += counted
        life.released += not counted

    def end(self, life: Life, how: str) -> None:
        """Note that a message is gone."""
        self._take_back(life)
        life.state = how
        del self.present[life.id]

    def _take_back(self, life: Life) -> None:
        if life.state == "running" and life.holder is not None:
            life.holder.held -= 1
            life.holder.idle_since = self._schedule.us
