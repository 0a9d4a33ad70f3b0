"""What covers several queues takes at most twice the commands for twice as many queues."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from delayq import Queue, queues
from delayq.queue_names import Server
from tests.harness.servers import RedisServer

pytestmark = pytest.mark.full

FEW, GROWTH = 40, 2.2

CALLS: dict[str, Callable[[Server, list[str]], object]] = {
    "stats_of": lambda server, names: server.stats_of(names),
    "upcoming_of": lambda server, names: server.upcoming_of(names, 3600, 300),
    "schedules_of": lambda server, names: server.schedules_of(names),
    "readings_of": lambda server, names: server.readings_of(names),
    "examine": lambda server, names: server.examine(names, False, lambda *_: None),
}


def test_every_method_for_several_queues_is_measured():
    methods = inspect.getmembers(Server, inspect.isfunction)
    of_several = {name for name, each in methods if "names" in inspect.signature(each).parameters}
    assert {name for name in of_several if not name.startswith("_")} == CALLS.keys()


@pytest.mark.parametrize("name", [*CALLS, "queues"])
def test_twice_as_many_queues_take_at_most_twice_the_commands(own_server: RedisServer, name: str):
    few, many = (commands(own_server, name, count) for count in (FEW, 2 * FEW))
    assert many <= GROWTH * few


def commands(server: RedisServer, name: str, count: int) -> int:
    """Return how many commands the server ran for a call about this many queues."""
    names = [f"q{number}" for number in range(count)]
    with server.client() as client:
        for each in names:
            with Queue(each, redis=client) as queue:
                queue.send("x", delay=60)
                queue.schedules.add("nightly", "@daily")
        found = Server(server.url, None, "delayq", "growth")
        try:
            found.ping()
            before = client.info("stats")["total_commands_processed"]
            if name == "queues":
                queues(url=server.url)
            else:
                CALLS[name](found, names)
            return int(client.info("stats")["total_commands_processed"] - before)
        finally:
            found.close()
