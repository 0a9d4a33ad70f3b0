"""Further steps: follow-ups of an ack, reserved ids, and redriven dead letters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar
from unittest.mock import ANY

from delayq import Message, Outgoing, Queue, SentMessage
from delayq.model.units import from_ms
from tests.harness.model.held import Clock, Follower, Handed, retrying
from tests.harness.model.model import Model


class Beyond:
    """A part of `Life`, which has these attributes."""

    taken: ClassVar[Counter[str]]
    features: set[str]
    queue: Queue
    model: Model
    now: Clock
    handed: list[tuple[Message, Handed]]
    both: Callable[..., Any]
    settle: Callable[..., Any]
    one_call_only: Callable[..., None]
    note_replace: Callable[[str, str], None]
    lose_payload: Callable[[str], None]

    def ack_then(self, number: int, stale: bool, then: list[dict[str, Any]], over: str | None) -> None:
        if over and (met := self.model.within(over)):  # which the ids of a program rarely meet
            then = [{**each, "id": met[0].id} for each in then[:1]]
        if len(then) > 1:  # with several shards, follow-ups are rarely on the same one
            home = self.model.home_of(then[0]["id"])
            then = [each for each in then if self.model.home_of(each["id"]) == home]
        before = {each["id"]: self.model.messages.get(each["id"]) for each in then}
        states = {id: m.state if m else "nothing" for id, m in before.items()}
        followers, outgoing = [], []
        for each in then:
            payload, expires = {"then": self.now.micros}, each["expires"] and each["delay"] + each["expires"]
            followers.append(Follower(each["id"], payload, each["delay"], each["retries"], expires, each["conflict"]))
            outgoing.append(
                Outgoing(
                    payload,
                    delay=each["delay"] / 1000,
                    id=each["id"],
                    on_conflict=each["conflict"],
                    expires_in=expires and expires / 1000,
                    **retrying(each["retries"], payload),
                )
            )
            self.taken[f"then {each['conflict']} over {states[each['id']]}"] += 1
        replaced = self.model.counters["replaced"]
        if self.settle("ack", number, stale, followers, kind="ack then", then=outgoing) is None and then:
            self.features.add("chain")
        if self.model.counters["replaced"] > replaced:
            for each in then:
                self.note_replace(each["conflict"], states[each["id"]])

    def send_unique(self, id: str, delay: int, conflict: Any, retries: int, unique: int) -> None:
        old = self.model.messages.get(id)
        is_free = old is None or old.state == "garbage"
        payload = {"n": self.now.micros}
        options = {"on_conflict": conflict, "unique_for": unique / 1000} | retrying(retries, payload)
        said = self.both(
            "send unique",
            lambda: due_and_created(self.queue.send(payload, delay=delay / 1000, id=id, **options)),
            lambda: comparable(self.model.send_unique(id, payload, delay, retries, unique, conflict)),
        )
        if said == "ServerUnreachable":
            return
        how = said if isinstance(said, str) else "done" if said[1] else "refused"
        self.taken[f"send unique {how}"] += 1
        if is_free and how != "done":
            self.taken["send unique while reserved"] += 1
            self.features.add("unique_for")

    def edit(self, id: str, delay: int, seen: str) -> None:
        old, payload = self.model.messages.get(id), {"edited": self.now.micros}
        died = None if seen == "none" or old is None else old.score - (seen == "older")
        had_payload = old is not None and old.has_payload
        said = self.both(
            "edit",
            lambda: self.queue.dead.edit(
                id, payload, delay=delay / 1000, died_at=None if died is None else from_ms(died)
            ),
            lambda: self.model.edit(id, payload, delay, died),
        )
        if said == "ServerUnreachable":
            return
        self.taken["edit " + ("done" if said else "refused")] += 1
        self.features.update(["edit"] if said else [])
        self.taken["edit without payload"] += said and not had_payload

    def redrive(
        self, older: int | None, newer: int | None, error: str | None, reason: str | None, delay: int, gone: bool
    ) -> None:
        if gone and (dead := self.model.within("dead")):
            self.lose_payload(dead[0].id)

        def real() -> tuple[int, int, int]:
            redriven = self.queue.dead.redrive(
                older_than=None if older is None else older / 1000,
                newer_than=None if newer is None else newer / 1000,
                error=error,
                reason=reason,
                delay=delay / 1000,
            )
            return redriven.total, redriven.matched, redriven.moved

        self.one_call_only()
        found = self.both("redrive", real, lambda: self.model.redrive(older, newer, error, reason, delay))
        if found == "ServerUnreachable":
            return
        total, matched, moved = found
        self.features.update(["redrive"] if moved else [])
        self.taken["redrive all"] += 0 < moved == total
        self.taken["redrive not all"] += matched < total
        self.taken["redrive leaves a payload that is gone"] += moved < matched


def due_and_created(sent: SentMessage) -> tuple[int, bool]:
    """The result of a send in the model's form."""
    return round(sent.due_at.timestamp() * 1000), sent.created


def comparable(result: tuple[int | None, bool]) -> tuple[Any, bool]:
    """The model's result without the due time of an existing message that does not wait."""
    due, created = result
    return (ANY if due is None else due), created
