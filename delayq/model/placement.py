"""Where a message is: in which state, in which shard of its queue, and under which key."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final, Literal, TypeAlias, get_args

from delayq.errors import InvalidInput
from delayq.model.validation import check_prefix, check_queue_name

State = Literal["pending", "ready", "unack", "retry", "dead", "garbage", "held"]
"""The states of a message. Each is a sorted set, and a message is in exactly one."""

Row: TypeAlias = tuple[str, bytes]
"""A message's id and its score."""

Cancelled: TypeAlias = Literal["cancelled", "stopping", "in_flight", "unknown"]
Buried: TypeAlias = Literal["buried", "in_flight", "dead", "unknown"]
Rescheduled: TypeAlias = Literal["rescheduled", "in_flight", "dead", "unknown"]
"""What becomes of a message that `cancel`, `bury` or `reschedule` is asked to move."""

Purgeable = Literal["pending", "ready", "retry", "dead", "held"]

MESSAGE, UNIQUE = "msg:", "unique:"  # in the keys of envelopes and reserved ids
RESULT, PROGRESS = "result:", "progress:"  # in those of tasks' records, and of what handlers report

STATES: Final[tuple[State, ...]] = get_args(State)
DELIVERABLE: Final[tuple[State, ...]] = ("pending", "ready", "retry")
"""Those in which a message only waits for its time."""
WAITING: Final[tuple[State, ...]] = (*DELIVERABLE, "held")
"""Those in which a message waits: for its time, or for a group to end."""
PURGEABLE: Final[tuple[State, ...]] = get_args(Purgeable)
MAX_SHARDS: Final = 1024


def shard_of(message_id: str, shards: int) -> int:
    """Return the number of the shard, 0 to ``shards - 1``, that holds a message."""
    return zlib.crc32(message_id.encode(errors="surrogateescape")) % shards if shards > 1 else 0


def check_state(state: str, allowed: Iterable[str] = get_args(State)) -> None:
    """Raise InvalidInput unless `state` is one of the allowed ones."""
    if state not in (names := tuple(allowed)):
        raise InvalidInput(f"unknown state {state!r}; expected one of {', '.join(names)}")


def key_base(prefix: str, queue: str, shard: int = 0) -> str:
    """Return the prefix of the keys of a queue's shard: ``prefix:{queue}:``, or ``prefix:{queue#1}:``."""
    tag = check_queue_name(queue) + (f"#{shard}" if shard else "")
    return f"{check_prefix(prefix)}:{{{tag}}}:"
