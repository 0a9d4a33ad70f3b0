"""Groups of messages in the model, and the length of a bounded queue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.harness.model.held import Clock, Follower, Held

if TYPE_CHECKING:
    from collections import Counter

WAIT, CONTINUE, CANCELLED = "wcx"
HOUR_MS = 3_600_000


class QueueFull(Exception):
    """The queue has no room for the messages of these ids."""


class DuplicateMessage(Exception):
    """The id exists."""


@dataclass
class Group:
    """Messages that have been sent together. `over` is when the last one ended, 0 before."""

    mode: str
    roster: list[str]
    since: int
    then: Follower | None
    left: int
    dead: int = 0
    over: int = 0

    @property
    def stored(self) -> str:
        due, id = (f"+{self.then.delay}", self.then.id) if self.then else ("-", "")
        return f"{self.mode} {len(self.roster)} {self.left} {self.dead} {self.since} {self.over} {due} {id}"


def hold_of(name: str, group: Group) -> str:
    """What is stored with the message that waits for a group."""
    due = group.then and f"+{group.then.delay}"
    return f"\0{group.mode} {len(group.roster)} {group.since} {due} {name}"


class Groups:
    """A part of `Model`, which has these attributes."""

    now: Clock
    messages: dict[str, Held]
    counters: Counter[str]
    home_of: Callable[[str], int]
    max_length: int | None
    unbound: bool
    needs: int
    members: dict[str, str]
    groups: dict[str, Group]
    swept: dict[int, int]
    there: Callable[[str], Held | None]
    within: Callable[..., list[Held]]
    discard: Callable[[Held, str], None]
    cancel: Callable[[str], str]
    heard: bool
    ask_for_result: Callable[[Held], None]

    def has_room(self, count: int = 1) -> bool:
        """Whether a bounded queue takes this many more messages; dead letters and garbage do not count."""
        inside = len(self.within("pending", "ready", "unack", "retry", "held"))
        return inside + count <= (math.inf if self.max_length is None else self.max_length)

    def bound(self, most: int | None) -> None:
        self.max_length, self.unbound = most, most is None
        if most is not None:
            self.needs = max(self.needs, 2)

    def send_group(
        self, name: str, members: Sequence[Follower], then: Follower | None, mode: str
    ) -> list[tuple[str, int | None, bool]]:
        """Returns for each member its id, its due time, and whether it is new."""
        if there := self.groups.get(name):
            return [(id, None, False) for id in there.roster]
        given = [then, *members] if then else [*members]
        if any(self.there(each.id) for each in given):
            raise DuplicateMessage
        if not self.has_room(len(given)):
            raise QueueFull
        if self.home_of(name) == 0:  # the first shard is the one whose record is compared
            self.needs = 5
        for each in given:
            waits = each is then and members
            due = self.now.ms if waits else self.now.after(each.delay)
            state = "held" if waits else "pending"
            new = Held(each.id, each.payload, state, due, self.now.ms, each.max_retries, each.expires)
            self.ask_for_result(new)
            self.messages[each.id] = new
            self.counters["sent"] += 1
        over = 0 if members else self.now.ms
        self.groups[name] = Group(mode, [each.id for each in members], self.now.ms, then, len(members), over=over)
        self.members |= {each.id: name for each in members}
        if then and members:
            self.members[then.id] = hold_of(name, self.groups[name])
        return [(each.id, self.messages[each.id].score, True) for each in members]

    def ended(self, id: str, died: bool = False) -> None:
        """A message has ended: if it is a member, it counts once; the last one makes due what waits for the group."""
        name = self.members.get(id, "")
        if name.startswith("\0"):  # it waited for a group
            del self.members[id]
            return
        group = self.groups.get(name)
        if group is None or (died and group.mode == WAIT):
            return
        del self.members[id]
        group.left -= 1
        group.dead += died
        if group.left == 0:
            group.over = self.now.ms
            m = self.awaiting(name)
            if group.then and m is not None:
                m.state, m.score = "pending", self.now.after(group.then.delay)

    def awaiting(self, name: str) -> Held | None:
        """The message that still waits for a group, rather than a later one with its id for another group."""
        group = self.groups[name]
        m = self.messages.get(group.then.id) if group.then else None
        is_its_own = m is not None and self.members.get(m.id, "").endswith(f" {name}")
        return m if m is not None and m.state == "held" and is_its_own else None

    def cancel_group(self, name: str) -> int:
        """Returns how many messages were cancelled."""
        group = self.groups.get(name)
        if group is None:
            return 0
        left = [id for id in group.roster if self.members.get(id) == name]
        m = self.awaiting(name)
        waits = m is not None
        if m is not None:
            self.discard(m, "cancelled")
        if waits or left:
            group.mode = CANCELLED
        if not self.heard:
            return 0
        return waits + [self.cancel(id) for id in left].count("cancelled")

    def look_at_group(self, name: str) -> tuple[Any, ...] | None:
        """Returns what a client sees of it: total, left, dead, and the state."""
        group = self.groups.get(name)
        if group is None:
            return None
        left = [id for id in group.roster if self.members.get(id) == name]
        dead = sum(self.messages[id].state == "dead" for id in left)
        state = "blocked" if left and len(left) == dead else "running"
        if group.mode == CANCELLED:
            state = "cancelled"
        elif group.over:
            state = "done"
        return len(group.roster), group.left, group.dead + dead, state, group.then.id if group.then else None

    def sweep(self) -> None:
        """What a consumer does each minute: forget groups that ended more than an hour ago."""
        now = self.now.ms
        for home in {self.home_of(name) for name in self.groups} | {*self.swept}:
            last = self.swept.get(home, 0)
            if last <= now < last + 30_000:
                continue
            self.swept[home] = now
            for name, group in list(self.groups.items()):
                m = self.there(group.then.id) if group.then else None
                if self.home_of(name) == home and group.over and now - group.over > HOUR_MS and m is None:
                    del self.groups[name]
