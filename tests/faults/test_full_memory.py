"""At a server's maxmemory, operators can still do everything that stops a queue or makes room."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import pytest
import redis

from delayq import Queue
from tests.harness.servers import RedisServer

ACTIONS: dict[str, Callable[[Queue], object]] = {
    "cancel a waiting message": lambda queue: queue.cancel("waits"),
    "cancel a ready message": lambda queue: queue.cancel("due"),
    "cancel a running message": lambda queue: queue.cancel("runs"),
    "cancel a dead letter": lambda queue: queue.cancel("dead"),
    "cancel an occurrence": lambda queue: queue.cancel(str(queue.schedules.list()[0].next_id)),
    "reschedule": lambda queue: queue.reschedule("waits", delay=60),
    "bury": lambda queue: queue.dead.bury("waits"),
    "pause": lambda queue: queue.pause(),
    "pause for a time": lambda queue: queue.pause(60),
    "resume": lambda queue: queue.resume(),
    "limit": lambda queue: queue.configure(concurrency=1),
    "requeue": lambda queue: queue.dead.requeue("dead"),
    "requeue all": lambda queue: queue.dead.requeue("all"),
    "purge dead letters": lambda queue: queue.dead.purge(),
    "purge ready": lambda queue: queue.purge("ready"),
    "purge pending": lambda queue: queue.purge("pending"),
    "pause a schedule": lambda queue: queue.schedules.pause("nightly"),
    "remove a schedule": lambda queue: queue.schedules.remove("nightly"),
}


@pytest.fixture
def queue(any_server: RedisServer, any_client: redis.Redis) -> Iterator[Queue]:
    """A queue with something in each structure, on a server that stores nothing more."""
    with Queue("jobs", url=any_server.url) as queue:
        queue.schedules.add("nightly", "0 3 * * *", "payload")
        for name in ("dead", "runs"):
            queue.send("payload", id=name)
            (message,) = queue.receive(lease=600)
            if name == "dead":
                message.reject("unwanted")
        queue.send("payload", id="due")
        queue.send("payload", id="waits", delay=dt.timedelta(days=1))
        queue.stats()
        any_client.config_set("maxmemory", 1)
        yield queue
        any_client.config_set("maxmemory", 0)


@pytest.mark.parametrize("action", ACTIONS)
def test_operator_can_stop_the_queue_and_make_room(queue: Queue, action: str):
    ACTIONS[action](queue)
