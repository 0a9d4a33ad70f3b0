"""A group of messages that another message waits for."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final, Literal, NamedTuple

import msgspec

from delayq.model.delivery import SentMessage
from delayq.model.units import from_ms

OnDead = Literal["wait", "continue"]
GroupState = Literal["running", "blocked", "done", "cancelled"]

MODES: Final[dict[OnDead, str]] = {"wait": "w", "continue": "c"}
CANCELLED = "x"
RESULTS_A_TRIP: Final = 16  # of members: each may take 1 MiB

_RECORD = re.compile(
    r"(?P<mode>[a-z]) (?P<total>\d+) (?P<left>\d+) (?P<dead>\d+) (?P<since>\d+) (?P<over>\d+) \S+ (?P<then>.*)",
    re.ASCII | re.DOTALL,
)
_HOLD = re.compile(r"\0[a-z] \d+ \d+ \S+ (.*)", re.ASCII | re.DOTALL)


class SentGroup(NamedTuple):
    """The result of `Queue.send_group`.

    Attributes:
        id: of the group.
        sents: its members, in the order in which they were given. `created` is False if the group existed.
    """

    id: str
    sents: list[SentMessage]


class MessageGroupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A group of messages as it is at one instant: see `MessageGroup`."""

    id: str
    total: int
    left: int
    dead: int
    state: GroupState
    then: str | None
    created_at: dt.datetime
    ended_at: dt.datetime | None


def belongs_to(name: str, membership: str) -> bool:
    """Whether what is stored of a message says that it is a member of a group, or waits for it."""
    hold = _HOLD.fullmatch(membership)
    return name == (hold[1] if hold else membership)


def read_group(name: str, record: str, dead: int) -> MessageGroupInfo | None:
    """Read a group as stored; None if another program wrote it.

    Args:
        dead: how many of its members are dead letters now.
    """
    found = _RECORD.fullmatch(record)
    if not found:
        return None
    left, over = int(found["left"]), int(found["over"])
    state: GroupState = "blocked" if left and left == dead else "running"
    if found["mode"] == CANCELLED:
        state = "cancelled"
    elif over:
        state = "done"
    return MessageGroupInfo(
        id=name,
        total=int(found["total"]),
        left=left,
        dead=int(found["dead"]) + dead,
        state=state,
        then=found["then"] or None,
        created_at=from_ms(int(found["since"])),
        ended_at=from_ms(over) if over else None,
    )
