"""Which master has which slot of a cluster, as one of its nodes says; for both APIs.

redis-py's own look-up tries the nodes in a random order, so it waits for an unavailable one, and it closes the idle
connections of the node that answers. While a master is away, slots are looked up all the time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from delayq.transport.node_troubles import NodeTroubles


def to_ask(manager: Any, troubles: NodeTroubles) -> list[Any]:
    """Return the known nodes that are not in trouble, in a random order."""
    nodes = [node for name, node in list(manager.nodes_cache.items()) if not troubles.has(name)]
    random.shuffle(nodes)
    return nodes


def apply(manager: Any, known: Callable[[str, int], Any], asked: Any, reply: Any) -> None:
    """Store a reply to CLUSTER SLOTS in redis-py's table.

    Args:
        manager: redis-py's, which has the table.
        known: returns a node by its address.
        asked: the node that has replied.
    """
    remapped = getattr(manager, "remap_host_port", lambda host, port: (host, port))
    table, covered = manager.slots_cache, set()
    for first, last, (host, port, *_), *_ in reply:
        name = host.decode() if isinstance(host, bytes) else host
        master = known(*remapped(name or asked.host, int(port)))
        for slot in range(int(first), int(last) + 1):
            covered.add(slot)
            nodes = table.get(slot)
            if not nodes or nodes[0] != master:
                table[slot] = [master]
    for slot in set(table) - covered:
        table.pop(slot, None)
