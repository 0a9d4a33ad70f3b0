"""Examining many queues scans the keys of each server once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delayq import Outgoing, Queue
from delayq.protocol.queue_commands import MAX_IDS
from delayq.queue_names import Server
from tests.conftest import StartServer
from tests.harness.servers import RedisServer
from tests.harness.topologies import Cluster

MESSAGES = 2400  # in all queues together: several pages of a scan
MOST = 2 * (MESSAGES + 400) // MAX_IDS  # a server's table of keys may be half empty, and has other keys too


def scans(server: RedisServer) -> int:
    with server.client() as client:
        return int(client.info("commandstats").get("cmdstat_scan", {"calls": 0})["calls"])


def scans_of_examining(url: str, nodes: list[RedisServer], flush: Callable[[], Any], count: int) -> list[int]:
    """Return how many SCANs each node ran to examine `count` queues."""
    flush()
    names = [f"q{number}" for number in range(count)]
    for name in names:
        with Queue(name, url=url) as queue:
            queue.send_many(Outgoing(n, delay=3600) for n in range(MESSAGES // count))
    before = list(map(scans, nodes))
    server = Server(url, None, "delayq", "examining")
    try:
        reports = server.examine(names, False, lambda *_: None)
    finally:
        server.close()
    assert [(report.healthy, report.messages) for report in reports] == [(True, MESSAGES // count)] * count
    return [scans(node) - first for node, first in zip(nodes, before, strict=True)]


def test_many_queues_are_examined_in_one_scan(own_server: RedisServer):
    with own_server.client() as client:
        [few], [many] = (scans_of_examining(own_server.url, [own_server], client.flushall, count) for count in (5, 20))
    assert abs(many - few) <= 1
    assert many <= MOST


@pytest.mark.full
def test_many_queues_of_a_cluster_are_examined_in_one_scan_of_each_node(start_server: StartServer):
    cluster = Cluster(start_server)
    for count in (5, 20):
        assert sum(scans_of_examining(cluster.url, cluster.nodes, cluster.flush, count)) <= MOST + len(cluster.nodes)
