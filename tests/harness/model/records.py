"""Results of tasks in the model: what is kept of the end of messages that ask for it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from delayq.model.units import from_ms
from tests.harness.model.held import Clock, Handed, Held, token_of

if TYPE_CHECKING:
    from collections import Counter


class Record(NamedTuple):
    """How a task ended, or that it failed and is retried. The token is that of its message."""

    token: str
    status: str
    reason: str = ""


UNKNOWN = "UnknownTask: this consumer has no task 't'"
PATIENCE_MS, LONGEST_WAIT_MS, MOST_LATE_MS = 900_000, 60_000, 300_000


class Records:
    """A part of `Model`, which has these attributes."""

    now: Clock
    counters: Counter[str]
    rate: tuple[int, int] | None
    unknown_since: float | None  # when this client first met a message whose task it lacks, ms
    settling: Callable[[Handed], AbstractContextManager[Held]]
    bury: Callable[..., None]
    withdrawn: Callable[[Held], bool]
    give_back: Callable[[int], None]
    messages: dict[str, Held]
    home_of: Callable[[str], int]
    there: Callable[[str], Held | None]
    records: dict[str, Record]
    finished: set[int]  # the shards that have told waiting programs of an end
    tokens: dict[str, list[str]]  # id -> those of all its messages

    def ask_for_result(self, m: Held) -> None:
        """A message is stored; some ask for the result of their task."""
        m.token = token_of(m.payload, m.max_retries)
        self.tokens[m.id] += [m.token] if m.token else []

    def keep(self, m: Held, status: str, reason: str = "") -> None:
        """A delivery ends, and what became of it is kept, if its message asks for that."""
        if m.token and not (m.cancelled and status in ("retry", "dead")):
            old = self.records.get(m.id)
            if status == "done" and old is not None and old.token == m.token:
                reason = old.reason  # the error of the last attempt that failed stays
            self.records[m.id] = Record(m.token, status, reason)
            self.finished |= {self.home_of(m.id)} if status != "retry" else set()

    def lack_task(self, handed: Handed) -> None:
        """The consumer lacks the message's task: another one may have it, until all have had a quarter of an hour."""
        there, now = self.messages.get(handed.id), handed.at_us / 1000
        known = there.met if there is not None and there.met is not None and there.met[2] == there.error else None
        first, last, _ = known or (now, now, "")
        if handed.due - last > 2 * LONGEST_WAIT_MS:  # somebody has put it off
            first = now
        first = min(now, first + max(0, now - handed.due - MOST_LATE_MS))
        is_over = now - first >= PATIENCE_MS
        if not is_over and self.unknown_since is None:
            self.unknown_since = now
        with self.settling(handed) as m:
            if is_over:
                self.keep(m, "dead", "unknown-task")
                self.bury(m, "unknown-task", f"{UNKNOWN}; no consumer had it for 15 minutes", counted=False)
                return
            wait = round(min(LONGEST_WAIT_MS, 10_000 + max(0, now - first, now - (self.unknown_since or now))))
            self.counters["nacked"] += 1
            self.give_back(handed.at_us)
            if not self.withdrawn(m):
                m.released, m.known = m.released + 1, True
                m.error = f"{UNKNOWN}; first met at {moment(first)}, last at {moment(now)}"
                m.met = int(first), int(now), m.error
                m.state, m.score = "retry", self.now.after(wait)

    def look_at_result(self, id: str, token: str) -> tuple[str, str, str]:
        """What has become of the message with a token, or of the latest with this id for "", and why."""
        m, record = self.there(id), self.records.get(id)
        own = m.token if m is not None and m.has_payload else ""
        if m is not None and not m.has_payload and (record is None or record.token == token):
            own = token  # nobody can tell which message has lost its payload
        token = token or own or (record.token if record else "")
        is_its_own = m is not None and own == token and bool(token or not m.has_payload)
        is_dead = m is not None and m.state == "dead"
        if token and record is not None and record.token == token and record.status != "retry":
            has_ended = record.status == "done" or not is_its_own or is_dead  # else it was requeued
            if has_ended:
                return "kept", *record[1:]
        if m is not None and is_its_own:
            return ("dead", "dead", m.reason or "") if is_dead else ("live", "", "")
        return "plain" if m is not None and not token else "gone", "", ""


def moment(ms: float) -> str:
    return from_ms(int(ms)).isoformat(timespec="milliseconds")
