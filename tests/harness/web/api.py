"""Shared by the tests of the HTTP API: paths, bodies, data on the server, and the form of a refusal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from delayq import Outgoing, Queue, Topic
from delayq.web.api.operation import Operation

TOKEN = "a token that is long enough"  # for tests only
BEARER = {"authorization": f"Bearer {TOKEN}"}
MAIN = "/api/v1/servers/main"
EMAILS = f"{MAIN}/queues/emails"
ORDERS = f"{MAIN}/topics/orders"
BILLING = f"{ORDERS}/groups/billing"
STEPS = {
    "server": "main",
    "queue": "emails",
    "id": "m",
    "schedule": "nightly",
    "topic": "orders",
    "group": "billing",
    "job": "none",
}

DEAD = {"filter": {"state": "dead"}}
BODIES: dict[str, dict[str, Any]] = {
    "send_message": {"payload": 1, "id": "new"},
    "send_messages": {"messages": [{"payload": 1}, {"payload_base64": "AP8="}]},
    "edit_dead_letter": {"payload": 1},
    "cancel_messages": {"ids": ["m"]},
    "stop_messages": {"ids": ["m"]},
    "bury_messages": {"ids": ["m"]},
    "requeue_messages": {"ids": ["dead"]},
    "reschedule_messages": {"ids": ["m"], "delay_seconds": 5},
    "now_messages": {"ids": ["m"]},
    "cancel_matching": DEAD,
    "stop_matching": {"filter": {"state": "unack"}},
    "bury_matching": {"filter": {"state": "pending"}},
    "requeue_matching": DEAD,
    "reschedule_matching": {"filter": {"state": "pending"}, "delay_seconds": 1},
    "now_matching": {"filter": {"state": "pending"}},
    "purge_queue": {"state": "dead", "confirm": "emails"},
    "add_schedule": {"name": "hourly", "when": "0 * * * *"},
    "configure_queue": {"rate": "5/s", "max_dead": None},
    "publish_record": {"payload": 1},
    "delete_records": {"keys": ["0.1-1"]},
    "trim_topic": {"keep_records": 1, "confirm": "orders"},
    "make_group": {"name": "shipping", "position": "0"},
    "move_group": {"at": "2020-01-01T00:00:00Z"},
    "destroy_group": {"confirm": "billing"},
    "claim_records": {"consumer": "one", "idle_seconds": 0},
    "requeue_dead_letters": {"keys": ["0.1-1"]},
    "delete_dead_letters": {"keys": ["0.1-1"]},
    "requeue_all_dead_letters": {"confirm": "billing"},
    "delete_all_dead_letters": {"confirm": "billing"},
}
"""The bodies of the operations that need one."""


@contextlib.contextmanager
def stocked_with(queue: Queue, url: str) -> Iterator[Topic]:
    """Put one of everything into a queue and a topic."""
    queue.configure(events=True)
    queue.send_many(
        [
            Outgoing({"to": "ann"}, id="m", delay=60, headers={"tenant": "acme", "raw": b"\xff"}),
            Outgoing(b"\x00\xff", id="raw", delay=120),
            Outgoing({"to": "bob"}, id="dead"),
        ]
    )
    (message,) = queue.receive(1)
    message.reject("no such address", error="550: no such user")
    queue.schedules.add("nightly", "0 3 1 1 *", {"report": 1})
    with Topic("orders", url=url) as topic:
        group = topic.group("billing", start="0")
        topic.publish_many([])
        for n in range(3):
            topic.publish({"n": n}, headers={"k": "v"})
        first, _ = group.poll("one", 2)
        group.bury(first, "one", "broken", error="no")
        yield topic


def path_of(operation: Operation) -> str:
    """Return the path of an operation, with the names of the stored items."""
    return "/api/v1" + operation.path.format_map(STEPS)


def is_problem(answer: Any, status: int) -> bool:
    """Whether a response is a problem with a title and a detail; fails if it is another problem."""
    response = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status_code, response["status"], response["type"]) == (status, status, "about:blank"), response
    return bool(response["title"] and response["detail"])
