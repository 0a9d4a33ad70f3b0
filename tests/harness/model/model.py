"""A queue as a dict: what must happen to messages, in plain Python. docs/guarantees.md says the same in prose.

It shares only the terms with delayq: no script, no key, no envelope. A method is a call of a client. If its reply is
lost, the server has done the work and `heard` is False: the model leaves out what the client does after a reply.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from tests.harness.model.groups import DuplicateMessage, Group, Groups, QueueFull
from tests.harness.model.held import DEFAULT_RETRIES, WAITING, Claimed, Clock, Follower, Handed, Held, Plan, Schedule
from tests.harness.model.records import Record, Records
from tests.harness.model.watched import Watched

PAYLOAD_GONE = "the payload key is gone: evicted, or deleted by another program"
NET_MS = 60_000  # a message held back by its key is handed out by itself after this time


class StaleReceipt(Exception):
    """The delivery is not the current one of its message."""


class OtherShard(Exception):
    """A follow-up is on another shard."""


class InvalidInput(Exception):
    """The schedule does not exist."""


@dataclass
class Model(Groups, Records):
    """All messages and counters."""

    now: Clock
    backoff_ms: tuple[int, ...]
    shards: int = 1
    home_of: Callable[[str], int] = lambda _: 0
    key_of: Callable[[str], str | None] = lambda _: None
    rate: tuple[int, int] | None = None  # number of deliveries, and the period in ms
    concurrency: int | None = None
    per_key: int | None = None
    max_dead: int | None = None
    max_length: int | None = None
    unbound: bool = False  # an operator has removed the limit
    messages: dict[str, Held] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)  # id -> its group
    groups: dict[str, Group] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)  # id -> how its task ended
    finished: set[int] = field(default_factory=set)
    unknown_since: float | None = None
    tokens: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    swept: dict[int, int] = field(default_factory=dict)  # shard -> when its groups were last swept
    counters: Counter[str] = field(default_factory=Counter)
    reserved: dict[str, int] = field(default_factory=dict)  # id -> until when
    schedules: dict[str, Schedule] = field(default_factory=dict)
    recorded: bool = False
    has_ledger: bool = False
    paused: int | None = None
    paused_until: int | None = None
    needs: int = 0
    heard: bool = True
    lost: str = ""  # the round trip of a claim whose reply was lost: claim, fetch, open or slots
    unfetched: list[list[Claimed]] = field(default_factory=list)  # claims that a client could not fetch
    deliveries: int = 0
    hand_outs: list[int] = field(default_factory=list)  # microseconds: the deliveries that count against the rate
    of_shard: Counter[int] = field(default_factory=Counter)  # deliveries
    first_shard: int = 0  # of the last claim
    watched: dict[int, Watched] = field(default_factory=lambda: defaultdict(Watched))
    replaced: dict[int, int] = field(default_factory=dict)  # replaced delivery -> end of its lease, us
    slots: dict[int, tuple[str, str]] = field(default_factory=dict)  # delivery -> its key and id
    kept: dict[str, str] = field(default_factory=dict)  # id of a message that has a slot reserved -> key
    parked: dict[str, tuple[int, int]] = field(default_factory=dict)  # id held back by its key -> until when, due time
    in_line: set[tuple[str, int, str]] = field(default_factory=set)  # key, due time, id

    def within(self, *states: str, shard: int | None = None) -> list[Held]:
        """The messages of these states, ordered by score."""
        found = (m for m in self.messages.values() if m.state in states and shard in (None, self.home_of(m.id)))
        return sorted(found, key=lambda m: (m.score, m.id))

    # -- send ----------------------------------------------------------------------------------------------------------

    def send(
        self,
        id: str,
        payload: Any,
        delay: int,
        max_retries: int,
        expires: int | None = None,
        conflict: str = "ignore",
        is_exempt: bool = False,
    ) -> tuple[int | None, bool]:
        """Returns its due time, None for an existing message that does not wait, and whether it is new."""
        self.recorded = True
        old = self.there(id)
        if old is not None and conflict != "replace":
            if conflict == "error":
                raise DuplicateMessage
            return (old.score if old.state in WAITING else None), False
        if (old is None or old.state == "dead") and not is_exempt and not self.has_room():
            raise QueueFull
        new = Held(id, payload, "pending", self.now.after(delay), self.now.ms, max_retries, expires)
        self.ask_for_result(new)
        if old is not None and old.state == "unack":
            new.created += 1  # later than any delivery of the old one
            self.keep_place(old)
        if old is not None and (old.known or old.state == "unack"):
            new.past = new.attempts_reset = old.past + (old.state == "unack")
            new.released, new.known = old.released, True
        self.messages[id] = new
        self.counters["replaced" if old else "sent"] += 1
        if old is not None:
            self.ended(id)
        if conflict == "replace":
            self.leave_out(id)
        return new.score, old is None

    def there(self, id: str) -> Held | None:
        m = self.messages.get(id)
        return None if m is None or m.state == "garbage" else m

    def send_unique(
        self, id: str, payload: Any, delay: int, max_retries: int, unique: int, conflict: str
    ) -> tuple[int | None, bool]:
        """A send that reserves its id for a time, whatever happens to the message."""
        if self.reserved.get(id, 0) > self.now.ms and self.there(id) is None:
            self.recorded = True
            if conflict == "error":
                raise DuplicateMessage
            return None, False
        due, created = self.send(id, payload, delay, max_retries, None, conflict)
        if created:
            self.reserved[id] = self.now.after(unique)
        return due, created

    # -- receive -------------------------------------------------------------------------------------------------------

    def next_work(self, shard: int | None = None) -> float:
        """When a consumer next has something to do: never before the end of a pause."""
        opens = 0 if self.paused is None else math.inf if self.paused_until is None else self.paused_until
        return max(opens, min((m.score for m in self.within(*WAITING, shard=shard)), default=math.inf))

    def is_work_left(self) -> bool:
        return self.next_work() <= self.now.ms

    def receive(self, limit: int, lease: int) -> list[Handed]:
        """What a claim hands out; it repeats until there is something to handle, or nothing is due."""
        while True:
            claimed, handed = 0, list[Handed]()
            while self.unfetched and len(handed) < limit:
                old = [each for each in self.unfetched.pop() if each.until_us > self.now.us]
                found, rest = old[: limit - len(handed)], old[limit - len(handed) :]
                self.unfetched += [rest] if rest else []
                claimed += len(found)
                handed += self.fetched(list(map(self.renewed, found)))
                if not self.heard:
                    return []
            self.first_shard = (self.first_shard + 1) % self.shards
            for number in range(self.shards):
                shard = (self.first_shard + number) % self.shards
                if len(handed) == limit:
                    break
                self.recover(shard)
                found = self.claim(shard, limit - len(handed), lease)
                if self.lost == "claim":
                    return []  # leased, but no client knows it
                claimed += len(found)
                handed += self.fetched(found)
                if not self.heard:
                    return []
            if handed or not claimed:
                self.hand_back_unfetched()
                return handed

    def hand_back_unfetched(self) -> None:
        """What a receiver does at its end, as nobody would renew their leases: with more than it was asked for."""
        unfetched, self.unfetched = self.unfetched, []
        for each in chain.from_iterable(unfetched):
            if each.until_us > self.now.us and self.is_held(each):
                self.hand_back(each.message, each.at_us, each.due)

    def look(self) -> int:
        """What a consumer takes back."""
        return sum(self.recover(shard, is_consumer=True) for shard in range(self.shards))

    def recover(self, shard: int, is_consumer: bool = False) -> int:
        ended, _ = self.watched[shard].look(self.now.ms, is_consumer)
        before = self.counters["lease_lost"]
        kept = (self.now.ms - 60_000) * 1000
        self.replaced = {delivery: end for delivery, end in self.replaced.items() if end > kept}
        for m in self.within("unack", shard=shard):
            if m.lease_end_us <= ended * 1000:
                self.counters["lease_lost"] += 1
                if not self.withdrawn(m):
                    self.count_attempt(m)
                    m.lost += 1
                    m.error = "LeaseLost: the consumer did not settle the message before its lease ended"
                    m.state, m.score = "retry", m.lease_end
        return self.counters["lease_lost"] - before

    def claim(self, shard: int, limit: int, lease: int) -> list[Claimed]:
        """What is handed out: new messages and retries in turn, within the queue's limits."""
        for m in self.within("pending", shard=shard):
            if m.score <= self.now.ms:
                m.state = "ready"
                self.counters["promoted"] += 1
        if self.is_paused:
            return []
        limit = min(limit, self.room())
        fresh = self.within("ready", shard=shard)
        retries = [m for m in self.within("retry", shard=shard) if m.score <= self.now.ms]
        half = (limit + self.of_shard[shard] % 2) // 2 if limit % 2 else limit // 2
        of_retries = min(len(retries), max(limit - len(fresh), half))
        claimed = []
        for m in retries[:of_retries] + fresh[: limit - of_retries]:
            self.counters["delivered"] += 1
            self.counters[f"late:{(self.now.ms - m.score).bit_length()}"] += 1
            self.of_shard[shard] += 1
            self.deliveries += 1
            m.state, m.delivery = "unack", self.deliveries
            m.lease_end, m.handed_micros = self.now.ms + lease, self.now.marked_us % 1000
            claimed.append(Claimed(m, m.delivery, m.score, self.now.marked_us, m.lease_end_us, lease))
        if self.rate and claimed:  # old entries are forgotten bit by bit, even if a longer period is set later
            self.hand_outs += [self.now.marked_us] * len(claimed)
            past = sum(at <= self.now.us - self.rate[1] * 1000 for at in self.hand_outs)
            del self.hand_outs[: min(past, 2 * len(claimed))]
        return claimed

    def fetched(self, claimed: list[Claimed]) -> list[Handed]:
        """The part of a claim that may start. A client that could not fetch all of it tries again in the next call."""
        if self.lost == "fetch":
            self.unfetched.append(claimed)
            return []
        handed = self.opened([each for each in claimed if self.is_held(each)])
        if self.lost != "open":
            handed = self.take_slots(handed)
        if not self.heard:
            self.unfetched.append(claimed)
        return handed

    def renewed(self, claimed: Claimed) -> Claimed:
        """An older claim; its lease is renewed once a third of it is over."""
        lease_us = claimed.lease * 1000
        if not self.is_held(claimed) or claimed.until_us - self.now.us >= lease_us * 2 / 3:
            return claimed
        claimed.message.lease_end = self.now.ms + claimed.lease
        return replace(claimed, until_us=claimed.message.lease_end_us)

    def is_held(self, claimed: Claimed) -> bool:
        """Whether it was not settled, replaced or lost meanwhile; a replaced delivery does not run."""
        m = self.messages.get(claimed.message.id)
        ours = m is claimed.message and m.state == "unack" and m.delivery == claimed.number
        if not ours:
            self.replaced.pop(claimed.number, None)
        return ours

    def opened(self, claimed: list[Claimed]) -> list[Handed]:
        """The part of a claim that may start, according to the messages themselves."""
        late = set()  # numbers of deliveries
        for each in claimed:
            m = each.message
            if m.slot and m.has_payload:
                name, slot, plan = m.slot
                there = self.schedules.get(name)
                if there is None or there.plan != plan:  # it moves nothing
                    continue
                if is_skipped := not m.past and plan.skips(each.due, each.at_us // 1000):
                    late.add(each.number)
                self.arm(name, slot, plan.following(slot, each.at_us // 1000), is_skipped)
        handed = []
        for each in claimed:
            m, at = each.message, each.at_us // 1000
            is_expired = m.expires is not None and at >= m.created + m.expires
            if not m.has_payload:
                self.bury(
                    m, "payload-missing", "the payload key is gone: evicted, or deleted by another program", False
                )
                continue
            if each.number in late or (not m.past and is_expired):  # a message that has started does not expire
                self.keep(m, "expired", "expired")
                self.discard(m, "expired")
            elif m.used > m.max_retries:
                self.bury(m, "consumer-lost", counted=False)
            else:
                past = (m.payload, m.past + 1, each.due, m.lease_end, m.max_retries, m.used)
                handed.append(Handed(each.number, m.id, *past, each.at_us))
                continue
            self.let_go(self.key_of(m.id), kept=m.id)
        return handed

    # -- limits --------------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many messages may be handed out now. A running one counts until it is settled or its lease ends."""
        rooms = self.rooms()
        if rooms:
            self.forget_ended()
        return max(0, min(rooms.values(), default=10_000))

    def rooms(self) -> dict[str, int]:
        rooms = {}
        if self.rate:
            most, span = self.rate
            rooms["rate"] = most - sum(at > self.now.us - span * 1000 for at in self.hand_outs)
        if self.concurrency is not None:
            places = len(self.within("unack")) + sum(map(self.has_place, self.replaced))
            rooms["concurrency"] = self.concurrency - places
        return rooms

    def has_place(self, delivery: int) -> bool:
        """Whether a replaced delivery still counts."""
        return self.replaced.get(delivery, 0) > self.now.ms * 1000

    def keep_place(self, m: Held) -> None:
        if self.concurrency is not None or self.per_key is not None:
            self.replaced[m.delivery] = m.lease_end_us
            self.forget_ended()

    def forget_ended(self) -> None:
        self.replaced = {delivery: end for delivery, end in self.replaced.items() if self.has_place(delivery)}

    def give_back(self, at_us: int) -> None:
        """Stop counting a delivery against the rate, because it was not used."""
        if at_us in self.hand_outs:
            self.hand_outs.remove(at_us)

    def take_slots(self, handed: list[Handed]) -> list[Handed]:
        """The part that may start because its key has room; the rest is held back without using up a retry."""
        if self.per_key is None:
            return handed
        begin, running = [], dict[str, int]()
        net = NET_MS + 10 * len(self.in_line)
        for each in handed:
            m, key = self.messages[each.id], self.key_of(each.id)
            if key is None:
                begin.append(each)
                continue
            if key not in running:
                running[key] = self.running_of(key, self.per_key)
            till, before = self.parked.get(m.id, (None, 0))
            due = before if till == each.due else each.due
            kept = self.kept.pop(m.id, None) is not None or each.number in self.slots
            if kept or running[key] < self.per_key:
                running[key] += not kept
                self.slots[each.number] = key, m.id
                self.parked.pop(m.id, None)
                begin.append(replace(each, due=due, key=key))
                continue
            self.counters.update(["released", "held_back"])
            self.give_back(each.at_us)
            m.released, m.known = m.released + 1, True
            m.state, m.score = "pending", self.now.ms + net
            net += 10  # the next one comes back after it
            self.parked[m.id] = m.score, due
            self.in_line.add((key, due, m.id))
        return begin

    def running_of(self, key: str, most: int) -> int:
        """How many deliveries of a key run or may start next. Lost ones are only detected when there is no room."""
        count = sum(of == key for of, _ in self.slots.values()) + sum(of == key for of in self.kept.values())
        if count < most:
            return count
        for delivery, (of, id) in list(self.slots.items()):
            m = self.messages.get(id)
            runs = m is not None and m.state == "unack" and m.delivery == delivery
            if of == key and not runs and not self.has_place(delivery):
                del self.slots[delivery]
                self.replaced.pop(delivery, None)
                count -= 1
        for id, of in list(self.kept.items()):
            if of == key and (id not in self.messages or self.messages[id].state not in ("ready", "unack")):
                del self.kept[id]
                count -= 1
        return count

    def let_go(self, key: str | None, ended: int | None = None, kept: str | None = None, look: bool = False) -> None:
        """A delivery of a key has ended, or will not start: the next ones may start, earliest due first."""
        if self.per_key is None or key is None:
            return
        if ended is not None:
            self.slots.pop(ended, None)
            self.replaced.pop(ended, None)
        if kept is not None:
            self.kept.pop(kept, None)
        room = self.per_key - self.running_of(key, 0 if look else self.per_key)
        for member in sorted(each for each in self.in_line if each[0] == key):
            if room <= 0:
                break
            _, due, id = member
            self.in_line.remove(member)
            m, (till, waited_for) = self.messages.get(id), self.parked.get(id, (0, None))
            if m is not None and m.state in ("pending", "ready") and waited_for == due and m.score == till:
                m.state, m.score = "ready", due
                self.kept[id] = key
                self.counters["promoted"] += 1
                room -= 1
            if waited_for == due and (m is None or m.state != "unack"):
                del self.parked[id]

    def look_through(self) -> None:
        """What a consumer does each second: find slots that nothing uses."""
        keys = {key for key, _, _ in self.in_line} | {key for key, _ in self.slots.values()} | {*self.kept.values()}
        for key in sorted(keys):
            self.let_go(key, look=True)

    # -- settle --------------------------------------------------------------------------------------------------------

    def is_running(self, handed: Handed) -> bool:
        m = self.messages.get(handed.id)
        return m is not None and m.state == "unack" and m.delivery == handed.number

    @contextmanager
    def settling(self, handed: Handed) -> Iterator[Held]:
        """A delivery ends. Its slots become free, even if its message was replaced."""
        ours = self.is_running(handed)
        if ours:
            yield self.messages[handed.id]
        self.let_go(handed.key, handed.number)
        if not ours:
            self.give_up_place(handed)

    def give_up_place(self, handed: Handed) -> None:
        """What a client does when it learns that a delivery is stale."""
        if self.heard:
            self.replaced.pop(handed.number, None)
        raise StaleReceipt

    def ack(self, handed: Handed) -> None:
        with self.settling(handed) as m:
            self.keep(m, "done")
            del self.messages[handed.id]
            self.counters["acked"] += 1
            self.ended(handed.id)

    def ack_then(self, handed: Handed, then: Sequence[Follower]) -> None:
        if not then:
            self.ack(handed)
            return
        if any(self.home_of(each.id) != self.home_of(handed.id) for each in then):
            raise OtherShard
        stale = not self.is_running(handed)
        if not stale:
            done = self.messages[handed.id]
            if any(each.conflict == "error" and self.there(each.id) and each.id != done.id for each in then):
                raise DuplicateMessage
            self.keep(done, "done")
            del self.messages[handed.id]
            self.counters["acked"] += 1
            self.ended(handed.id)
            for each in then:
                self.send(each.id, each.payload, each.delay, each.max_retries, each.expires, each.conflict, True)
        if self.heard:
            self.let_go(handed.key, handed.number)
        if stale:
            self.give_up_place(handed)

    def nack(self, handed: Handed, delay: int | None, error: str) -> None:
        with self.settling(handed) as m:
            if handed.used >= handed.max_retries:
                self.keep(m, "dead", "retries-exhausted")
                self.bury(m, "retries-exhausted", error)
                return
            self.counters["nacked"] += 1
            self.keep(m, "retry")
            if not self.withdrawn(m):
                wait = self.backoff_ms[min(handed.used, len(self.backoff_ms) - 1)] if delay is None else delay
                self.count_attempt(m)
                m.state, m.score, m.error = "retry", self.now.after(wait), error or m.error

    def release(self, handed: Handed) -> None:
        with self.settling(handed) as m:
            self.hand_back(m, handed.at_us, handed.due)

    def hand_back(self, m: Held, at_us: int, due: int) -> None:
        self.counters["released"] += 1
        self.give_back(at_us)
        if not self.withdrawn(m):
            m.released, m.known = m.released + 1, True
            m.state, m.score = "ready", min(self.now.ms, due)

    def reject(self, handed: Handed, reason: str, error: str) -> None:
        with self.settling(handed) as m:
            self.keep(m, "dead", reason)
            self.bury(m, reason, error)

    def extend(self, handed: Handed, lease: int) -> None:
        if self.is_running(handed):
            self.messages[handed.id].lease_end = self.now.ms + lease
            return
        if handed.number in self.replaced:
            self.replaced[handed.number] = (self.now.ms + lease) * 1000
        raise StaleReceipt

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
        self.ended(m.id, died=True)

    def withdrawn(self, m: Held) -> bool:
        if m.cancelled:
            self.discard(m, "cancelled")
        return m.cancelled

    def discard(self, m: Held, counter: str) -> None:
        self.counters[counter] += 1
        m.state, m.score, m.known, m.error, m.reason = "garbage", self.now.ms, False, None, None
        self.ended(m.id)

    # -- schedules -----------------------------------------------------------------------------------------------------

    def arm(self, name: str, slot: int, following: int, is_skipped: bool = False) -> None:
        """Arm another occurrence, unless another client has done so meanwhile."""
        there = self.schedules.get(name)
        if there is None or there.armed != slot or not (armed := self.free_slot(name, following, there.plan)):
            return
        there.armed, id = armed, self.occurrence(name, armed)
        if slot > 0 and (missed := there.plan.passed_over(slot, following) + is_skipped):  # otherwise nothing was armed
            self.counters["slots_missed"] += missed
        of = (name, armed, there.plan)
        self.messages[id] = Held(id, there.payload, "pending", armed, self.now.ms, there.max_retries, slot=of)
        self.counters["sent"] += 1

    def free_slot(self, name: str, slot: int, plan: Plan) -> int | None:
        """The slot, or another if its id is taken: a millisecond later, or the next one if the slot has had its run."""
        while (m := self.there(self.occurrence(name, slot))) is not None and not self.waits_for(name, slot):
            if not self.heard:
                return None
            had_its_run = m.slot and m.has_payload
            if not had_its_run and self.there(self.occurrence(name, slot + 1)) is None:
                return slot + 1
            slot = plan.after(slot)
        return slot

    def waits_for(self, name: str, slot: int) -> bool:
        """Whether the slot is armed, and its message waits for it: a change of the schedule withdraws it."""
        m, there = self.messages.get(self.occurrence(name, slot)), self.schedules.get(name)
        armed = there is not None and there.armed == slot
        return armed and m is not None and m.state in ("pending", "ready") and m.score == slot

    def occurrence(self, name: str, slot: int) -> str:
        """The id of a slot's message, which is on the first shard."""
        ids = (f"{name}@{slot}" + f"~{n}" * (n > 0) for n in count())
        return next(id for id in ids if self.home_of(id) == 0)

    def withdraw(self, name: str) -> None:
        """Remove the waiting occurrence of a schedule; a running one is finished."""
        armed = self.schedules[name].armed
        if self.waits_for(name, armed):
            self.discard(self.messages[self.occurrence(name, armed)], "cancelled")

    def add_schedule(self, name: str, plan: Plan, payload: Any, max_retries: int) -> int:
        """Returns the armed slot."""
        self.recorded = True
        old, new = self.schedules.get(name), Schedule(plan, payload, max_retries, -1)
        if old is not None and replace(old, armed=-1) == new:
            return old.armed
        if (old is None or old.armed) and not self.free_slot(name, plan.after(self.now.ms), plan):
            return 0
        if old is not None:
            self.withdraw(name)
        self.schedules[name] = new
        if old is not None and old.armed == 0:
            new.armed = 0
        else:
            self.arm(name, -1, plan.after(self.now.ms))
        return new.armed

    def pause_schedule(self, name: str) -> bool:
        if name in self.schedules:
            self.withdraw(name)
            self.schedules[name].armed = 0
        return name in self.schedules

    def resume_schedule(self, name: str) -> bool:
        there = self.schedules.get(name)
        if there is not None and there.armed == 0:
            self.arm(name, 0, there.plan.after(self.now.ms))
        return there is not None

    def remove_schedule(self, name: str) -> bool:
        if name not in self.schedules:
            return False
        self.withdraw(name)
        del self.schedules[name]
        return True

    def run_schedule(self, name: str, id: str) -> str:
        if name not in self.schedules:
            raise InvalidInput
        there = self.schedules[name]
        self.send(id, there.payload, 0, there.max_retries)
        return id

    def revive(self) -> None:
        """Schedules that lost their occurrence, or its id to another message, continue with their next slot."""
        for name, there in self.schedules.items():
            m = self.messages.get(self.occurrence(name, there.armed))
            is_running = m is not None and m.state == "unack" and there.armed > self.now.ms - 60_000
            is_due = m is not None and m.state in WAITING and m.score <= self.now.ms
            is_gone = m is None or not (is_running or is_due) or (m.has_payload and not m.slot)
            if 0 < there.armed <= self.now.ms and is_gone:
                self.arm(name, there.armed, there.plan.following(there.armed, self.now.ms))

    # -- what keepers do -----------------------------------------------------------------------------------------------

    def cancel(self, id: str) -> str:
        m = self.there(id)
        if m is None:
            return "unknown"
        if m.state == "unack":
            m.cancelled = True
            return "in_flight"
        self.discard(m, "cancelled")
        self.leave_out(id)
        return "cancelled"

    def leave_out(self, id: str) -> None:
        name, _, slot = id.partition("~")[0].partition("@")
        if self.heard and slot.isdecimal() and name in self.schedules:  # only its slot is skipped; run_now has none
            plan = self.schedules[name].plan
            self.arm(name, int(slot), plan.following(int(slot), self.now.ms))

    def bury_waiting(self, id: str, reason: str) -> str:
        m = self.messages.get(id)
        if m is None or m.state not in (*WAITING, "held"):
            return {"unack": "in_flight", "dead": "dead"}.get(m.state if m else "", "unknown")
        m.state, m.score, m.reason = "dead", self.now.ms, reason
        self.counters["died"] += 1
        self.ended(id, died=True)
        self.leave_out(id)
        return "buried"

    def reschedule(self, id: str, delay: int) -> str:
        m = self.messages.get(id)
        if m is None or m.state not in (*WAITING, "held"):
            return {"unack": "in_flight", "dead": "dead"}.get(m.state if m else "", "unknown")
        m.state, m.score = "pending", self.now.after(delay)
        self.counters["rescheduled"] += 1
        self.leave_out(id)
        return "rescheduled"

    def requeue(self, ids: Iterable[str], delay: int = 0) -> int:
        dead = [m for m in self.within("dead") if m.id in set(ids) and m.has_payload]
        for m in dead:
            m.state, m.score, m.reason, m.attempts_reset = "pending", self.now.after(delay), None, m.past
            m.lost, m.known = 0, True
            self.counters["requeued"] += 1
        return len(dead)

    def edit(self, id: str, payload: Any, delay: int, died: int | None) -> bool:
        m = self.messages.get(id)
        if m is None or m.state != "dead" or died not in (None, m.score):
            return False
        if not m.has_payload:  # everything about it is lost
            m.max_retries, m.expires, m.has_payload, m.slot = DEFAULT_RETRIES, None, True, None
            m.token = ""
            m.created = self.now.ms
        m.payload = payload
        return self.requeue([id], delay) == 1

    def redrive(
        self, older: int | None, newer: int | None, error: str | None, reason: str | None, delay: int
    ) -> tuple[int, int, int]:
        """Returns how many dead letters there are, how many match, and how many of these were requeued."""
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
        count = 0
        for state in sorted(states, key=lambda state: state != "held"):  # the end of its group would make one due
            inside = self.within(state)
            found = [m for m in inside if m.score <= oldest]
            for m in found:
                self.discard(m, "purged")
            count += len(found)
            if inside and not self.heard:
                return count
        self.collect()
        return count

    def collect(self) -> int:
        garbage = self.within("garbage")
        for m in garbage:
            del self.messages[m.id]
            self.counters["collected"] += 1
        return len(garbage)

    def clean_up(self, retention: int) -> None:
        """What a consumer does each minute."""
        for shard in range(self.shards):
            dead = self.within("dead", shard=shard)
            more = 0 if self.max_dead is None else len(dead) - max(1, self.max_dead // self.shards)
            for rank, m in enumerate(dead):
                if m.score <= self.now.ms - retention or rank < more:
                    self.discard(m, "purged")
        self.sweep()
        self.revive()

    def lose_payload(self, id: str) -> None:
        if id in self.messages:
            self.messages[id].has_payload = False

    @property
    def is_paused(self) -> bool:
        return self.paused is not None and (self.paused_until is None or self.paused_until > self.now.ms)

    def pause(self, for_ms: int | None) -> None:
        self.recorded = True
        self.paused = self.paused if self.is_paused else self.now.ms
        self.paused_until = None if for_ms is None else self.now.ms + for_ms
        if for_ms is not None:
            self.needs = max(self.needs, 1)

    def resume(self) -> None:
        self.paused = self.paused_until = None

    def keep_dead(self, most: int) -> None:
        self.max_dead, self.recorded = most, True

    def configure(self, rate: tuple[int, int] | None, concurrency: int | None, per_key: int | None) -> None:
        self.rate, self.concurrency, self.recorded = rate, concurrency, True
        self.per_key = per_key
        if self.heard:
            for key in sorted({key for key, _, _ in self.in_line}):
                self.let_go(key, look=True)
