"""Steps on groups and on the length of a bounded queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar
from unittest.mock import ANY

from delayq import Outgoing, Queue
from delayq.operations import groups, results
from tests.harness.model.held import Clock, Follower, retrying
from tests.harness.model.model import Model
from tests.harness.model.replies import LostReplies


class Grouping:
    """A part of `Life`, which has these attributes."""

    taken: ClassVar[Counter[str]]
    features: set[str]
    shards: int
    queue: Queue
    model: Model
    now: Clock
    replies: LostReplies
    both: Callable[..., Any]

    def bound(self, most: int | None) -> None:
        """Set the greatest length of the queue, or remove it; a queue with shards has none."""
        if self.shards > 1:
            return
        self.both("bound", lambda: self.queue.configure(max_length=most), lambda: self.model.bound(most))
        self.features.update([] if most is None else ["max_length"])

    def send_group(
        self, name: str, members: list[dict[str, Any]], then: dict[str, Any] | None, continues: bool
    ) -> None:
        home = self.model.home_of(name)
        given = [each for each in members if self.model.home_of(each["id"]) == home]
        if then is not None and self.model.home_of(then["id"]) == home:
            given = [then, *(each for each in given if each["id"] != then["id"])]
        else:
            then = None
        followers, outgoing = [], []
        for each in given:
            payload, expires = {"group": self.now.micros}, each["expires"] and each["delay"] + each["expires"]
            options = retrying(each["retries"], payload)
            followers.append(Follower(each["id"], payload, each["delay"], each["retries"], expires, "error"))
            delay, expiry = each["delay"] / 1000, expires and expires / 1000
            outgoing.append(Outgoing(payload, delay=delay, id=each["id"], expires_in=expiry, **options))
        first = outgoing.pop(0) if then else None
        waits = followers.pop(0) if then else None
        dead: Any = "continue" if continues else "wait"

        def real() -> list[tuple[str, Any, bool]]:
            sent = self.queue.send_group(outgoing, first, id=name, dead=dead)
            return [(each.id, round(each.due_at.timestamp() * 1000), each.created) for each in sent.sents]

        def model() -> list[tuple[str, Any, bool]]:
            sent = self.model.send_group(name, followers, waits, dead[0])
            return [(id, ANY if due is None else due, created) for id, due, created in sent]

        said = self.both("send group", real, model)
        how = said if isinstance(said, str) else "existing" if said and not said[0][2] else "done"
        self.taken[f"group {how}"] += 1
        if how == "done":
            self.features.add("group")
            self.taken["group " + ("with then" if then else "without then")] += 1

    def cancel_group(self, name: str) -> None:
        self.replies.next = "heard"  # it makes several calls
        count = self.both("cancel group", lambda: self.queue.cancel_group(name), lambda: self.model.cancel_group(name))
        self.taken["group cancelled"] += count > 0

    def look_at_group(self, name: str) -> None:
        """Look at a group, which may be unknown, and at all that are known."""
        for each in {name: None, **dict.fromkeys(self.model.groups)}:
            self._look_at(each)

    def _look_at(self, name: str) -> None:
        def real() -> tuple[Any, ...] | None:
            found = self.queue.group(name)
            return None if found is None else (found.total, found.left, found.dead, found.state, found.then)

        said = self.both("group", real, lambda: self.model.look_at_group(name))
        if said != "ServerUnreachable":
            self.taken[f"group is {said[3] if said else 'unknown'}"] += 1

    def look_at_result(self, id: str) -> None:
        """Look at the results of the latest messages with an id, and at those of all ids that asked for one."""
        waited = [(id, token) for token in self.model.tokens[id][-3:]]
        waited += [(each, "") for each in {id: None, **self.model.tokens}]

        def real() -> tuple[list[Any], list[str]]:
            found = [self.queue.execute(results.find, *each) for each in waited]
            said = [
                (each.status, each.result.status, each.result.error.reason if each.result.error else "")
                if each.result
                else (each.status, "", "")
                for each in found
            ]
            return said, [*self.queue.execute(partial(results.look, waited=waited))]

        def model() -> tuple[list[Any], list[str]]:
            said = [self.model.look_at_result(*each) for each in waited]
            return said, [status for status, *_ in said]

        said = self.both("result", real, model)
        if said != "ServerUnreachable":
            self.taken.update(f"result is {status} {how}".rstrip() for status, how, _ in said[0])

    def sweep(self, later: int) -> None:
        """What a consumer does each minute."""
        self.replies.next = "heard"
        self.now.ms += later
        before = len(self.model.groups)

        def real() -> None:
            while self.queue.execute(groups.sweep):
                pass

        self.both("sweep", real, self.model.sweep)
        self.taken["group forgotten"] += len(self.model.groups) < before
