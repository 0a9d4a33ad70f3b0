"""A queue as a dict: what must become of messages, in plain Python.

It shares nothing with delayq but the words: no script, no key, no envelope.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.harness.model.held import WAITING, Clock, Handed, Held


class StaleReceipt(Exception):
    """The delivery is not the running one of its message."""


class DuplicateMessage(Exception):
    """The id exists."""


@dataclass(frozen=True)
class Follower:
    """What is to follow from an ack."""

    id: str
    payload: Any
    delay: int
    max_retries: int
    expires: int | None
    conflict: str


@dataclass
class Model:
    """All messages, and what was counted."""

    now: Clock
    backoff_ms: tuple[int, ...]
    messages: dict[str, Held] = field(default_factory=dict)
    counters: Counter[str] = field(default_factory=Counter)
    reserved: dict[str, int] = field(default_factory=dict)  # id -> until when
    recorded: bool = False
    has_ledger: bool = False
    paused: int | None = None
    deliveries: int = 0

    def within(self, *states: str) -> list[Held]:
        """The messages of these states, in the order of their scores."""
        return sorted((m for m in self.messages.values() if m.state in states), key=lambda m: (m.score, m.id))

    def send(
        self, id: str, payload: Any, delay: int, max_retries: int, expires: int | None = None, conflict: str = "ignore"
    ) -> tuple[int | None, bool]:
        """Returns when the message is due, None for an existing one that does not wait, and whether it is new."""
        self.recorded = True
        old = self.messages.get(id)
        if old is None or old.state == "garbage":
            old = None
        elif conflict != "replace":
            if conflict == "error":
                raise DuplicateMessage
            return (old.score if old.state in WAITING else None), False
        new = Held(id, payload, "pending", self.now.after(delay), self.now.ms, max_retries, expires)
        new.created += old is not None and old.state == "unack"  # later than any hand-out of the old one
        if old is not None and (old.known or old.state == "unack"):
            new.past = new.attempts_reset = old.past + (old.state == "unack")
            new.released, new.known = old.released, True
        self.messages[id] = new
        self.counters["replaced" if old else "sent"] += 1
        return new.score, old is None

    def send_unique(
        self, id: str, payload: Any, delay: int, max_retries: int, unique: int, conflict: str
    ) -> tuple[int | None, bool]:
        """A send that keeps others of its kind out for a time, whatever becomes of the message."""
        old = self.messages.get(id)
        if self.reserved.get(id, 0) > self.now.ms and (old is None or old.state == "garbage"):
            self.recorded = True
            if conflict == "error":
                raise DuplicateMessage
            return None, False
        due, created = self.send(id, payload, delay, max_retries, None, conflict)
        if created:
            self.reserved[id] = self.now.after(unique)
        return due, created

    def next_work(self) -> float:
        """When a consumer has something to do next: never while the queue is paused, at once when some is ready."""
        if self.paused is not None:
            return math.inf
        ready, later = self.within("ready"), self.within("pending", "retry")
        return -math.inf if ready else min((m.score for m in later), default=math.inf)

    def is_work_left(self) -> bool:
        return self.next_work() <= self.now.ms

    def receive(self, limit: int, lease: int) -> list[Handed]:
        """What a claim hands out; it goes on until there is something to handle, or nothing is due."""
        while True:
            self.recover()
            claimed = self.claim(limit)
            handed = [each for each in (self.hand_out(m, lease) for m in claimed) if each]
            if handed or not claimed:
                return handed

    def recover(self) -> None:
        for m in self.within("unack"):
            if m.lease_ran_out(self.now):
                self.counters["lease_lost"] += 1
                if not self.withdrawn(m):
                    self.count_attempt(m)
                    m.lost += 1
                    m.error = "LeaseLost: the consumer did not settle the message before its lease ended"
                    m.state, m.score = "retry", m.lease_end

    def claim(self, limit: int) -> list[Held]:
        for m in self.within("pending"):
            if m.score <= self.now.ms:
                m.state = "ready"
                self.counters["promoted"] += 1
        if self.paused is not None:
            return []
        fresh, retries = self.within("ready"), [m for m in self.within("retry") if m.score <= self.now.ms]
        half = (limit + self.counters["delivered"] % 2) // 2 if limit % 2 else limit // 2
        of_retries = min(len(retries), max(limit - len(fresh), half))
        claimed = retries[:of_retries] + fresh[: limit - of_retries]
        for m in claimed:
            self.counters["delivered"] += 1
            self.counters[f"late:{(self.now.ms - m.score).bit_length()}"] += 1
        return claimed

    def hand_out(self, m: Held, lease: int) -> Handed | None:
        self.deliveries += 1
        m.state, m.delivery = "unack", self.deliveries
        m.lease_end, m.handed_micros = self.now.ms + lease, self.now.micros
        if not m.has_payload:
            self.bury(m, "payload-missing", "the payload key is gone: evicted, or deleted by another program", False)
            return None
        if m.expires is not None and not m.past and self.now.ms >= m.created + m.expires:
            self.discard(m, "expired")
            return None
        if m.used > m.max_retries:
            self.bury(m, "consumer-lost", counted=False)
            return None
        return Handed(m.delivery, m.id, m.payload, m.past + 1, m.score, m.lease_end, m.max_retries, m.used)

    def is_running(self, handed: Handed) -> bool:
        m = self.messages.get(handed.id)
        return m is not None and m.state == "unack" and m.delivery == handed.number

    def running(self, handed: Handed) -> Held:
        if not self.is_running(handed):
            raise StaleReceipt
        return self.messages[handed.id]

    def ack(self, handed: Handed, then: Iterable[Follower] = ()) -> None:
        done = self.running(handed)
        for each in then:
            old = self.messages.get(each.id)
            if each.conflict == "error" and old not in (None, done) and old.state != "garbage":
                raise DuplicateMessage
        del self.messages[handed.id]
        self.counters["acked"] += 1
        for each in then:
            self.send(each.id, each.payload, each.delay, each.max_retries, each.expires, each.conflict)

    def nack(self, handed: Handed, delay: int | None, error: str) -> None:
        m = self.running(handed)
        if handed.used >= handed.max_retries:
            return self.bury(m, "retries-exhausted", error)
        self.counters["nacked"] += 1
        if self.withdrawn(m):
            return None
        wait = self.backoff_ms[min(handed.used, len(self.backoff_ms) - 1)] if delay is None else delay
        self.count_attempt(m)
        m.state, m.score, m.error = "retry", self.now.after(wait), error or m.error
        return None

    def release(self, handed: Handed) -> None:
        m = self.running(handed)
        self.counters["released"] += 1
        if not self.withdrawn(m):
            m.released, m.known = m.released + 1, True
            m.state, m.score = "ready", min(self.now.ms, handed.due)

    def extend(self, handed: Handed, lease: int) -> None:
        self.running(handed).lease_end = self.now.ms + lease

    def reject(self, handed: Handed, reason: str, error: str) -> None:
        self.bury(self.running(handed), reason, error)

    def cancel(self, id: str) -> str:
        m = self.messages.get(id)
        if m is None or m.state == "garbage":
            return "unknown"
        if m.state == "unack":
            m.cancelled = True
            return "in_flight"
        self.discard(m, "cancelled")
        return "cancelled"

    def reschedule(self, id: str, delay: int) -> str:
        m = self.messages.get(id)
        if m is None or m.state not in WAITING:
            return {"unack": "in_flight", "dead": "dead"}.get(m.state if m else "", "unknown")
        m.state, m.score = "pending", self.now.after(delay)
        self.counters["rescheduled"] += 1
        return "rescheduled"

    def requeue(self, ids: Iterable[str], delay: int = 0) -> int:
        dead = [m for m in self.within("dead") if m.id in set(ids) and m.has_payload]
        for m in dead:
            m.state, m.score, m.reason, m.attempts_reset = "pending", self.now.after(delay), None, m.past
            m.lost = 0
            self.counters["requeued"] += 1
        return len(dead)

    def edit(self, id: str, payload: Any, delay: int, died: int | None) -> bool:
        m = self.messages.get(id)
        if m is None or m.state != "dead" or died not in (None, m.score):
            return False
        if not m.has_payload:  # nothing is known of it any more
            m.max_retries, m.expires, m.has_payload = 5, None, True
        m.payload, m.created = payload, self.now.ms
        return self.requeue([id], delay) == 1

    def redrive(
        self, older: int | None, newer: int | None, error: str | None, reason: str | None, delay: int
    ) -> tuple[int, int, int]:
        """Returns how many are dead, how many of them are meant, and how many of these came back."""
        dead = self.within("dead")
        meant = [
            m.id
            for m in dead
            if (older is None or m.score <= self.now.ms - older)
            and (newer is None or m.score > self.now.ms - newer)
            and (error is None or error in (m.error or ""))
            and reason in (None, m.reason)
        ]
        return len(dead), len(meant), self.requeue(meant, delay)

    def purge(self, states: Iterable[str], older_than: int | None = None) -> int:
        oldest = math.inf if older_than is None else self.now.ms - older_than
        found = [m for m in self.within(*states) if m.score <= oldest]
        for m in found:
            self.discard(m, "purged")
        self.collect()
        return len(found)

    def collect(self) -> int:
        garbage = self.within("garbage")
        for m in garbage:
            del self.messages[m.id]
            self.counters["collected"] += 1
        return len(garbage)

    def lose_payload(self, id: str) -> None:
        if id in self.messages:
            self.messages[id].has_payload = False

    def pause(self) -> None:
        self.recorded = True
        self.paused = self.now.ms if self.paused is None else self.paused

    def resume(self) -> None:
        self.paused = None

    def count_attempt(self, m: Held) -> None:
        m.past, m.known = m.past + 1, True

    def bury(self, m: Held, reason: str, error: str = "", counted: bool = True) -> None:
        if self.withdrawn(m):
            return
        if counted:
            self.count_attempt(m)
        else:
            m.released, m.known = m.released + 1, True
        m.state, m.score, m.reason, m.error = "dead", self.now.ms, reason, error or m.error
        self.counters["died"] += 1

    def withdrawn(self, m: Held) -> bool:
        if m.cancelled:
            self.discard(m, "cancelled")
        return m.cancelled

    def discard(self, m: Held, counter: str) -> None:
        self.counters[counter] += 1
        m.state, m.score, m.known, m.error, m.reason = "garbage", self.now.ms, False, None, None
