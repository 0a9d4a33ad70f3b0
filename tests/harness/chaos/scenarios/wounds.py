"""The bell and payloads are deleted, and ids are added to a second structure, while messages flow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any, TypeAlias

import redis

from delayq import Message
from delayq.protocol.queue_keys import QueueKeys
from tests.harness.chaos.checker import Verdict
from tests.harness.chaos.traffic import NAME, RESUME_SECONDS, Traffic
from tests.harness.chaos.world import ROOT, Broken, World
from tests.harness.waiting import eventually

KEYS = QueueKeys("delayq", NAME)
FAR = 3600.0  # seconds
DOCTOR_SECONDS = 120.0
MISSING = "payload-missing"

Named: TypeAlias = set[tuple[str, str | None]]
"""The kinds of findings, and the ids that they are about."""


def run(world: World) -> Verdict:
    """The doctor names exactly the damage; after the repair, the counters add up; nothing disappears silently."""
    server = world.server()
    traffic = Traffic(world, server, seconds=world.pick(2, 90))
    with server.client() as client:
        ward = Ward(world, traffic, client)
        while traffic.is_on:
            ward.lose_bell()
            ward.heal_what_waits()
            ward.lose_payloads()
            ward.plant_what_runs()
        traffic.drain()
        ward.plant_without_a_ring()
    verdict = traffic.end()
    world.figures["wounds"] = f"{ward.wounds}"
    dead = {letter.id: letter.reason for letter in traffic.queue.dead.list(limit=1000)}
    if dead != dict.fromkeys(ward.doomed, MISSING):
        raise Broken(f"dead are {dead}, and not {ward.doomed}, for their payloads; {verdict}")
    return verdict


class Ward:
    """Damages messages of a queue in use.

    Attributes:
        wounds: how much damage was done.
        doomed: messages that must end as dead letters, because their payload is gone.
    """

    def __init__(self, world: World, traffic: Traffic, client: redis.Redis) -> None:
        self.wounds = 0
        self.doomed: list[str] = []
        self._world = world
        self._traffic = traffic
        self._queue = traffic.queue
        self._client = client

    def lose_bell(self) -> None:
        """For a moment, delete the bell whenever it was rung."""
        end = time.monotonic() + self._world.dice.uniform(0.1, 0.5)
        with self._world.trouble("the bell is deleted"):
            while time.monotonic() < end:
                self.wounds += int(self._client.delete(KEYS.bell))

    def heal_what_waits(self) -> None:
        """Damage pending messages and a running one; the doctor must name and repair them."""
        with self._world.trouble("a payload is deleted, and ids are planted"):
            later_ms = (time.time() + FAR) * 1000
            gone, retried, buried = (self._send(what, FAR) for what in ("gone", "retried", "buried"))
            self._client.delete(KEYS.message(gone))
            self._client.zadd(KEYS.retry, {retried: later_ms})
            self._client.zadd(KEYS.dead, {buried: time.time() * 1000})
            running = self._take()
            self._client.zadd(KEYS.pending, {running.id: later_ms})
        self.doomed.append(gone)
        wounds: Named = {(MISSING, gone), *(("duplicate", each) for each in (retried, buried, running.id))}
        self.wounds += len(wounds)
        self._expect_of_doctor(1, wounds | {("books", None)})  # a message in two structures is counted twice
        self._expect_of_doctor(0, wounds, "--repair")
        self._expect_of_doctor(0, set())
        self._ack(running, True)
        for each in (retried, buried):
            self._make_due(each)

    def lose_payloads(self) -> None:
        """Delete the payload of a message, which then falls due, and of a running one that fails."""
        with self._world.trouble("payloads are deleted"):
            running, due = self._take(), self._send("due", FAR)
            self._client.delete(KEYS.message(due), KEYS.message(running.id))
            self._make_due(due)
            running.nack(0)
            self._world.journal.note("failed", running.id, attempt=running.attempt)
        self.doomed += [due, running.id]
        self.wounds += 2
        if not eventually(lambda: all(map(self._is_dead, (due, running.id)))):  # before the doctor runs again
            raise Broken(f"{due} and {running.id} have lost their payloads, and are not dead")

    def plant_what_runs(self) -> None:
        """Add a running message to those that are due: it is handled once more, and only once."""
        with self._world.trouble("an id is planted"):
            running = self._take()
            self._client.zadd(KEYS.pending, {running.id: time.time() * 1000})
            self.wounds += 1
            if not eventually(lambda: self._queue.get(running.id) is None):
                raise Broken(f"{running.id} was planted among those that are due, and was not handled")
            self._ack(running, False)

    def plant_without_a_ring(self) -> None:
        """Let a message fall due without a bell, while the consumers are idle."""
        message_id = self._send("silent", FAR)
        due_ms = time.time() * 1000
        self._world.journal.note("sent", message_id, ms=due_ms)
        self._client.zadd(KEYS.pending, {message_id: due_ms})
        self._client.delete(KEYS.bell)
        self.wounds += 1
        if not eventually(lambda: self._queue.get(message_id) is None):
            raise Broken("a message of which no bell tells was not handled")
        seconds = time.time() - due_ms / 1000
        self._world.figures["without a bell"] = f"{seconds:.2f} s"
        if self._world.size == "long" and seconds > RESUME_SECONDS:
            raise Broken(f"a message of which no bell tells was handled {seconds:.2f} s after it was due")

    def _is_dead(self, message_id: str) -> bool:
        info = self._queue.get(message_id)
        return info is not None and info.state == "dead"

    def _send(self, what: str, delay: float) -> str:
        message_id = f"{what}-{self._traffic.count}"
        self._world.send(self._queue, 1, message_id, delay=delay)
        self._traffic.count += 1
        return message_id

    def _make_due(self, message_id: str) -> None:
        due_ms = time.time() * 1000
        if (said := self._queue.reschedule(message_id, delay=0)) != "rescheduled":
            raise Broken(f"{message_id} was not where it should wait: {said}")
        self._world.journal.note("sent", message_id, ms=due_ms)

    def _take(self) -> Message:
        """Receive any message, in competition with the consumers."""
        while not (messages := self._queue.receive(max_messages=1, wait=0.1, lease=60)):
            self._send("more", 0)
        (message,) = messages
        self._world.journal.note("delivered", message.id, attempt=message.attempt, ms=message.handed_ms)
        return message

    def _ack(self, message: Message, ours: bool) -> None:
        self._world.journal.note("finished", message.id, attempt=message.attempt)
        if self._queue.ack(message) != [ours]:
            raise Broken(f"the ack of {message.id} was {'refused' if ours else 'accepted'}")

    def _expect_of_doctor(self, code: int, wounds: Named, *options: str) -> None:
        command = [sys.executable, "-m", "delayq.cli", "doctor", NAME, "--url", self._traffic.server.url, "--json"]
        done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, check=False, timeout=DOCTOR_SECONDS)
        report: dict[str, Any] = json.loads(done.stdout)
        named: Named = {(finding["kind"], finding["id"]) for finding in report["findings"]}
        if named != wounds or done.returncode != code:
            raise Broken(f"the doctor named {named} and ended with {done.returncode}, not {wounds}")
