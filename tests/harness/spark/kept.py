"""A queue with messages of every kind, and all that Redis holds of them."""

from __future__ import annotations

from typing import Any

from delayq import Outgoing, Queue, doctor
from delayq.model.placement import State

STATES: tuple[State, ...] = ("pending", "ready", "unack", "retry", "dead")
KNOWN = ("attempts", "errors", "reasons")


def fill(queue: Queue) -> None:
    """Put messages of every kind into a queue that is empty, and pause it: 40 of them, none handed out."""
    headers: dict[str, Any] = {"text": "ä", "bytes": b"\xff\x00", "number": 7, "none": None}
    queue.send_many([Outgoing({"n": n}, id=f"json-{n:02}", headers=headers, max_retries=9) for n in range(16)])
    taken = queue.receive(16)
    for message in taken[:4]:
        message.nack(delay=3600, error=ValueError("no ☃ today"))
    for message in taken[4:8]:
        message.reject("unwanted", error="broken")
    for message in taken[8:12]:
        message.release()
    for message in taken[12:]:
        message.reject("twice", error="it has been here before")
    queue.dead.requeue([message.id for message in taken[12:14]], delay=7200)  # attempts_reset, and its error is kept
    queue.send_many([Outgoing(bytes([n, 255]), id=f"raw-{n}", delay=3600 + n) for n in range(14)])
    queue.send("gone", id="bare")
    client: Any = queue._executor.client
    client.delete(queue._context.shard("bare").keys.message("bare"))
    for message in queue.receive(100):  # which finds out that a payload is gone
        message.release()
    queue.send_many([Outgoing("☃", id=f"ends-{n}", expires_in=0.001) for n in range(9)])
    queue.pause()


def stored(queue: Queue) -> dict[str, tuple[Any, ...]]:
    """Return of each message its state, score, stored envelope, deliveries, error and reason, as Redis has them."""
    client: Any = queue._executor.client
    found: dict[str, tuple[Any, ...]] = {}
    queue.stats()  # learns how many shards there are
    for scripts in queue._context.shards:
        keys = scripts.keys
        known = [client.hgetall(getattr(keys, name)) for name in KNOWN]
        for state in STATES:
            for raw, score in client.zrange(keys.state(state), 0, -1, withscores=True):
                message_id = raw.decode()
                envelope = client.get(keys.message(message_id))
                assert message_id not in found
                found[message_id] = (state, score, envelope, *(each.get(raw) for each in known))
    return found


def assert_whole(queue: Queue) -> None:
    """Assert that a queue keeps its promises, and that its books balance."""
    report = doctor.examine(queue)
    assert [each for each in report.findings if each.severity == "error"] == []
    assert queue.stats().missing == 0
