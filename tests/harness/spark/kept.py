"""A queue with messages of every kind, and everything Redis holds for them."""

from __future__ import annotations

from typing import Any

from delayq import Outgoing, Queue, doctor
from delayq.model.placement import State

STATES: tuple[State, ...] = ("pending", "ready", "unack", "retry", "dead")
KNOWN = ("attempts", "errors", "reasons")


def fill(queue: Queue) -> None:
    """Put 40 messages of every kind into an empty queue and pause it; none is unacked."""
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
    queue.dead.requeue([message.id for message in taken[12:14]], delay=7200)  # sets attempts_reset, keeps the error
    queue.send_many([Outgoing(bytes([n, 255]), id=f"raw-{n}", delay=3600 + n) for n in range(14)])
    queue.send("gone", id="bare")
    client: Any = queue._executor.client
    client.delete(queue._context.shard("bare").keys.message("bare"))
    for message in queue.receive(100):  # this finds out that a payload is gone
        message.release()
    queue.send_many([Outgoing("☃", id=f"ends-{n}", expires_in=0.001) for n in range(9)])
    queue.pause()


def stored(queue: Queue) -> dict[str, tuple[Any, ...]]:
    """Return the state, score, envelope, deliveries, error and reason of each message, as in Redis."""
    client: Any = queue._executor.client
    found: dict[str, tuple[Any, ...]] = {}
    queue.stats()  # this finds out how many shards there are
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
    """Assert that the doctor finds no error, and that the counters add up."""
    report = doctor.examine(queue)
    assert [each for each in report.findings if each.severity == "error"] == []
    assert queue.stats().missing == 0
