"""Fixtures for the tests of the Lua scripts: a queue in its raw state, and receipts that are no longer valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness.lua.raw import NOW, RawQueue
from tests.harness.servers import RedisServer


@pytest.fixture(scope="session")
def connected() -> Iterator[dict[RedisServer, RawQueue]]:
    """The queues of the servers used so far: connecting takes longer than a test."""
    queues: dict[RedisServer, RawQueue] = {}
    yield queues
    for queue in queues.values():
        queue.close()


@pytest.fixture(autouse=True)
def no_socket_left() -> None:
    """Connections in `connected` stay open; the tests of scripts open no others."""


@pytest.fixture
def queue(any_server: RedisServer, connected: dict[RedisServer, RawQueue]) -> RawQueue:
    """An empty queue; the test runs on each version of the server."""
    if any_server not in connected:
        connected[any_server] = RawQueue(any_server)
    queue = connected[any_server]
    queue.now = NOW
    return queue


def _send_again(queue: RawQueue, receipt: str) -> None:
    queue.ack([("a", receipt)])
    queue.now = NOW + 0.252  # receipts tell deliveries apart that are two microseconds apart
    queue.send([("a", "+0", b"{}")])


def _lose_lease(queue: RawQueue, _: str) -> None:
    queue.now = NOW + 60_000.25  # the same microsecond as in the first delivery
    queue.unack_to_retry()


def _requeue(queue: RawQueue, receipt: str) -> None:
    queue.reject("a", receipt, "unwanted")
    queue.requeue(["a"])


# What happens to message a between its first delivery and the next use of that delivery's receipt.
LIVES: dict[str, Callable[[RawQueue, str], object]] = {
    "acked": lambda queue, receipt: queue.ack([("a", receipt)]),
    "nacked": lambda queue, receipt: queue.nack("a", receipt, 0),
    "released": lambda queue, receipt: queue.release("a", receipt, NOW),
    "rejected": lambda queue, receipt: queue.reject("a", receipt, "unwanted"),
    "expired": lambda queue, receipt: queue.expire("a", receipt),
    "replaced": lambda queue, _: queue.replace("a", "+0", b"{}"),
    "sent-again": _send_again,
    "lease-lost": _lose_lease,
    "requeued": _requeue,
}

GONE = {"acked", "expired", "rejected"}  # there is nothing to deliver again

FORGERIES = {
    "empty": "",
    "micros-only": "250",
    "other-micros": "0.0.0.0-251",
    "no-micros": "0.0.0.0-",
    "longer": "0.0.0.0-2500",
    "later-attempt": "1.0.0.0-250",
    "short": "0.0.0-250",
    "blank-behind": "0.0.0.0-250 ",
}


@pytest.fixture(
    params=[*LIVES, *(f"{life}-redelivered" for life in LIVES if life not in GONE), *(f"forged-{f}" for f in FORGERIES)]
)
def stale(queue: RawQueue, request: pytest.FixtureRequest) -> str:
    """A receipt that does not belong to a running delivery of message a."""
    queue.now = NOW + 0.25
    queue.send([("a", "+0", b"{}"), ("b", "+0", b"{}")])
    receipt = queue.deliver("a")
    assert receipt == "0.0.0.0-250"
    if request.param.startswith("forged-"):
        return FORGERIES[request.param.removeprefix("forged-")]
    LIVES[request.param.removesuffix("-redelivered")](queue, receipt)
    if request.param.endswith("-redelivered"):
        assert queue.deliver("a") != receipt
    return receipt
