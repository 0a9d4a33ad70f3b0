"""What a client learns of a queue while it works: see `QueueContext`, which has one of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from delayq.errors import DelayqError
from delayq.model.settings import Changes
from delayq.operations.byte_budget import ByteBudget
from delayq.protocol.queue_commands import QueueCommands


class ClaimState:
    """What claims have learnt, and what they have handed out and not delivered; each claim changes it.

    Attributes:
        budget: how much one round trip may fetch.
        is_limited: whether the queue has limits.
        unlimited_until: when to ask again whether there is a limit per key, on the monotonic clock.
        unfetched: messages that were handed out and could not be fetched.
        fetching: messages that were handed out and are being fetched.
        late: claims that a node has not answered yet.
        lost: the errors of late claims whose replies are lost, until a receiver raises one.
    """

    def __init__(self) -> None:
        self.budget = ByteBudget()
        self.is_limited = False
        self.unlimited_until = 0.0
        self.unfetched: list[Any] = []
        self.fetching: list[Any] = []
        self.late: list[Any] = []
        self.lost: list[DelayqError] = []
        self._first = 0  # the shard that the last claim began with

    @property
    def is_owed(self) -> bool:
        """Whether messages may have been handed out that only the next claim brings."""
        return bool(self.late or self.unfetched)

    def rotated(self, shards: Sequence[QueueCommands]) -> Sequence[QueueCommands]:
        """Return the shards, each time beginning with another one, so that none is always last."""
        if len(shards) == 1:
            return shards
        self._first = (self._first + 1) % len(shards)
        return [*shards[self._first :], *shards[: self._first]]

    def take_lost(self) -> list[DelayqError]:
        """Return the errors of late claims whose replies were lost since the last call."""
        lost, self.lost = self.lost, []
        return lost


class SweepState:
    """Where the searches for lost schedules, slots and waiting messages stand; each upkeep changes it.

    Attributes:
        armed: the rank, among the slots of schedules, at which the next search for lost ones begins.
        ahead: the same for slots that are too far ahead.
        keys_in_haste: whether the keys with waiting messages are checked without a pause.
        leases_lost: how many leases were found to have ended since the slots of keys were last looked through.
        replaced_seen_ms: until when the ends of replaced deliveries were seen, by the scripts' clock.
    """

    def __init__(self) -> None:
        self.armed = self.ahead = 0
        self.keys_in_haste = False
        self.leases_lost = 0
        self.replaced_seen_ms = 0
        self._last_keys: dict[str, str] = {}  # that were checked, by the name of their index

    def begin_in_haste(self, index: str) -> None:
        """Check all keys of an index from the first one on, without a pause."""
        self.keys_in_haste, self._last_keys[index] = True, ""

    def after(self, index: str) -> str:
        """Return the key of an index after which the next page begins, or "" for the first page."""
        return self._last_keys.get(index, "")

    def checked(self, index: str, page: Sequence[str], is_full: bool) -> None:
        """Note a page that was checked; the index begins again after one that is not full."""
        self._last_keys[index] = page[-1] if is_full else ""


class Wishes:
    """The settings that this client stores where none are stored yet, until every shard has them.

    Attributes:
        all: those that the client was made with.
        left: those that are not yet stored in all shards.
    """

    def __init__(self, wishes: Changes) -> None:
        self.all = self.left = wishes
        self._stored: set[str] = set()  # the shards, by the name of a key, that already have them

    def add(self, wishes: Changes) -> None:
        """Wish for more, except for what the client was given another value for."""
        self.all = self.left = wishes | self.all

    def begin_again(self) -> None:
        """Store all again: the queue is new, or the server has lost its data."""
        self.left = self.all
        self._stored.clear()

    def missing(self, shards: Sequence[QueueCommands]) -> list[QueueCommands]:
        """Return the shards that do not have them yet."""
        return [scripts for scripts in shards if scripts.keys.meta not in self._stored]

    def stored(self, shard: str) -> None:
        """Note that a shard, named by a key, has them."""
        self._stored.add(shard)

    def drop(self, names: Collection[str]) -> None:
        """Forget settings that were stored by `configure`."""
        self.left = {name: value for name, value in self.left.items() if name not in names}

    def done(self) -> None:
        """Note that all shards have all of them."""
        self.left = {}
        self._stored.clear()
