"""Several servers that work as one: a master with a replica and sentinels, and a cluster.

Each gets a function that starts a server, so that the fixture or scenario that uses it also stops the servers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

import redis
from redis.crc import key_slot

from tests.harness.servers import RedisServer
from tests.harness.waiting import eventually

Start: TypeAlias = Callable[..., RedisServer]

SERVICE = "mymaster"
SLOTS = 16_384
SETTLED_SECONDS = 180.0  # an idle machine needs 2 to 5; a Sentinel does nothing for 30 after it was stopped
KEYS_A_MOVE = 20
AT_ONCE = {"repl-diskless-sync-delay": "0"}  # by default a master waits 5 s for more replicas before it feeds the first


def watch(sentinel: RedisServer, master: RedisServer, quorum: int = 1, **settings: int) -> None:
    """Let a sentinel watch only this master; `settings` are those of SENTINEL SET."""
    with sentinel.client() as client:
        with contextlib.suppress(redis.ResponseError):
            client.execute_command("SENTINEL", "REMOVE", SERVICE)
        client.execute_command("SENTINEL", "MONITOR", SERVICE, "127.0.0.1", master.port, quorum)
        for name, value in settings.items():
            client.execute_command("SENTINEL", "SET", SERVICE, name.replace("_", "-"), value)


def is_master(server: RedisServer) -> bool:
    """Whether a server answers and is a master."""
    return role(server).get("role") == "master"


def is_in_step(replica: RedisServer) -> bool:
    """Whether a server answers, is a replica, and has all of its master's data except what is in flight."""
    return role(replica).get("master_link_status") == "up"


def role(server: RedisServer) -> dict[str, Any]:
    """Return the replication info of a server; nothing if it does not answer."""
    with contextlib.suppress(redis.RedisError), server.client() as client:
        stats: dict[str, Any] = client.info("replication")
        return stats
    return {}


class Pair:
    """A master and its replica; they can switch roles."""

    def __init__(self, first: RedisServer, second: RedisServer) -> None:
        self._servers = (first, second)

    def roles(self) -> tuple[RedisServer, RedisServer]:
        """Return the master and the replica; raise AssertionError if they do not agree."""
        master, replica = sorted(self._servers, key=is_master, reverse=True)
        assert is_master(master), f"neither of {self._servers} is a master"
        assert is_in_step(replica), f"{replica!r} is not in step with its master"
        return master, replica

    @contextmanager
    def behind(self, seconds: float) -> Iterator[tuple[RedisServer, RedisServer]]:
        """Stop the replica and cut its link, so that it lags behind its master; yields the two."""
        master, replica = self.roles()
        os.kill(replica.pid, signal.SIGSTOP)  # otherwise it would reconnect at once
        try:
            with master.client() as client:
                client.client_kill_filter(_type="replica")
            time.sleep(seconds)
            yield master, replica
        finally:
            os.kill(replica.pid, signal.SIGCONT)


class Watched:
    """A master, its replicas, and sentinels that watch it.

    Args:
        settings: of the sentinels, such as ``down_after_milliseconds=1000``.
    """

    def __init__(self, start: Start, replicas: int = 0, sentinels: int = 1, **settings: int) -> None:
        self.master = start(port=True, config=AT_ONCE)
        self.replicas = [start(port=True, config=AT_ONCE) for _ in range(replicas)]
        for replica in self.replicas:
            follow(replica, self.master)
        self.sentinels = [start(port=True, sentinel=True) for _ in range(sentinels)]
        for sentinel in self.sentinels:
            watch(sentinel, self.master, sentinels // 2 + 1, **settings)
        assert eventually(self._is_whole, SETTLED_SECONDS)

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}/0"

    def give_up_after(self, milliseconds: int) -> None:
        """Set for how long a master may not answer until its replica is promoted."""
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                client.execute_command("SENTINEL", "SET", SERVICE, "down-after-milliseconds", milliseconds)

    def _is_whole(self) -> bool:
        for sentinel in self.sentinels:
            with sentinel.client() as client:
                state = client.sentinel_master(SERVICE)
            if (state["num-slaves"], state["num-other-sentinels"]) != (len(self.replicas), len(self.sentinels) - 1):
                return False
        return True


def follow(replica: RedisServer, master: RedisServer) -> None:
    """Make a server the replica of another one, and wait until it has its data."""
    with replica.client() as client:
        client.replicaof("127.0.0.1", str(master.port))
    assert eventually(lambda: is_in_step(replica), SETTLED_SECONDS)


class Cluster:
    """Masters that share the slots, with or without replicas, and masters without slots.

    Args:
        config: more settings for each node.
    """

    def __init__(
        self,
        start: Start,
        masters: int = 3,
        replicas: bool = False,
        empty: int = 0,
        config: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        settings = {"cluster-enabled": "yes"} | AT_ONCE | dict(config)
        counts = (masters, masters if replicas else 0, empty)
        groups = [[start(port=True, config=settings) for _ in range(count)] for count in counts]
        self.masters, self.replicas, self.empty = groups
        self.nodes = [node for group in groups for node in group]
        self.pairs = [Pair(*pair) for pair in zip(self.masters, self.replicas, strict=False)]
        for number, master in enumerate(self.masters):
            first, end = (n * SLOTS // masters for n in (number, number + 1))
            tell(master, "ADDSLOTS", *range(first, end))
        for number, node in enumerate(self.nodes):
            tell(node, "SET-CONFIG-EPOCH", number + 1)
            for other in self.nodes[:number]:
                tell(node, "MEET", "127.0.0.1", other.port)
        self.wait()
        for master, replica in zip(self.masters, self.replicas, strict=False):
            tell(replica, "REPLICATE", self.id(master))
        assert eventually(lambda: all(map(is_in_step, self.replicas)), SETTLED_SECONDS)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def id(self, node: RedisServer) -> str:
        return str(tell(node, "MYID").decode())

    def flush(self) -> None:
        """Delete all data and forget all scripts."""
        for master in self.masters:
            master.flush()

    def wait(self) -> None:
        """Wait until all nodes know each other and serve."""
        for node in self.nodes:
            assert eventually(partial(self._knows_all, node), SETTLED_SECONDS), tell(node, "INFO")

    def give_up_after(self, milliseconds: int) -> None:
        """Set for how long a master may not answer until its replica is promoted."""
        for node in self.nodes:
            with node.client() as client:
                client.config_set("cluster-node-timeout", milliseconds)

    def owner(self, key: str) -> RedisServer:
        """Return the master of a key's slot, according to the first master."""
        return self._holder(key_slot(key.encode()))

    def move(self, key: str, target: RedisServer, pause: float = 0.0) -> None:
        """Move a key's slot to another master, as `redis-cli --cluster reshard` does.

        Args:
            pause: seconds that clients see each stage: none, a part, or all of the keys have moved.
        """
        slot, source = key_slot(key.encode()), self.owner(key)
        tell(target, "SETSLOT", slot, "IMPORTING", self.id(source))
        tell(source, "SETSLOT", slot, "MIGRATING", self.id(target))
        with source.client() as client:
            while True:
                time.sleep(pause)
                keys = tell(source, "GETKEYSINSLOT", slot, KEYS_A_MOVE)
                if not keys:
                    break
                client.execute_command("MIGRATE", "127.0.0.1", target.port, "", 0, 5000, "KEYS", *keys)
        time.sleep(pause)
        for node in (target, source, *self.masters):
            tell(node, "SETSLOT", slot, "NODE", self.id(target))

    @contextmanager
    def down(self, slot: int) -> Iterator[None]:
        """Take an empty slot away from its master: then no node serves any command."""
        owner = self._holder(slot)
        for node in sorted(self.nodes, key=lambda node: node is not owner):  # otherwise the others would learn it again
            tell(node, "DELSLOTS", slot)
        assert eventually(lambda: all(tell(node, "INFO")["cluster_state"] == "fail" for node in self.nodes))
        try:
            yield
        finally:
            tell(owner, "ADDSLOTS", slot)
            self.wait()

    def _holder(self, slot: int) -> RedisServer:
        report = tell(self.masters[0], "SLOTS")
        port = next(master[1] for first, last, master, *_ in report if first <= slot <= last)
        return next(node for node in self.nodes if node.port == port)

    def _knows_all(self, node: RedisServer) -> bool:
        info = tell(node, "INFO")
        known = (info["cluster_known_nodes"], info["cluster_slots_assigned"])
        return info["cluster_state"] == "ok" and known == (str(len(self.nodes)), str(SLOTS))


@contextmanager
def running_cluster(binary: Path) -> Iterator[Cluster]:
    """Three masters that share the slots, for tests that do not change them; closed at the end."""
    with contextlib.ExitStack() as servers:

        def start(**options: Any) -> RedisServer:
            server = RedisServer(binary, **options)
            servers.callback(server.close)
            return server

        yield Cluster(start)


def tell(node: RedisServer, command: str, *words: Any) -> Any:
    """Send a CLUSTER command to a node."""
    with node.client() as client:
        return client.execute_command(f"CLUSTER {command}", *words)


def refusals(server: RedisServer) -> dict[str, int]:
    """Return how often a server has answered with each error code."""
    with server.client() as client:
        stats = client.info("errorstats")
    return {name.removeprefix("errorstat_"): said["count"] for name, said in stats.items()}
