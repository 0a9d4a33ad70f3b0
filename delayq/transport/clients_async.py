"""redis.asyncio clients with the settings of `clients`, one function for each way to reach a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from redis import asyncio as redis
from redis.asyncio.cluster import ClusterNode, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from delayq.errors import DelayqError, ServerNotReady, ServerUnreachable
from delayq.transport import redis_py
from delayq.transport.clients import DEFAULTS, KEEPALIVE, Address, Maker, unanswered, with_retry
from delayq.transport.pool_async import Pool, SentinelPool, guard_cluster
from delayq.transport.retry_async import retry
from delayq.transport.server_check import ServerInfo, inspecting, judge

Client: TypeAlias = "redis.Redis | RedisCluster"


class _Sentinels(Sentinel):
    """Like redis-py's, but names the sentinels if none can be reached."""

    async def discover_master(self, service_name: str) -> Any:
        try:
            return await super().discover_master(service_name)
        except MasterNotFoundError as error:
            if all(f"{each} - " in str(error) for each in self.sentinels):
                raise unanswered(self.sentinels) from None
            raise


_MAKER = Maker(redis, Pool, SentinelPool, _Sentinels, retry, Retry(NoBackoff(), 0))
single, unix, sentinel = _MAKER.single, _MAKER.unix, _MAKER.sentinel


def cluster(addresses: Sequence[Address], settings: dict[str, Any], tls: bool = False) -> RedisCluster:
    """Return a client of the cluster that nodes at `addresses` belong to; it asks for its slots when first used."""
    nodes = [ClusterNode(host, port) for host, port in addresses]
    options = DEFAULTS | KEEPALIVE | with_retry(settings, retry) | {"ssl": tls}
    # While a slot has no node, the others must still be served, and slots that moved must be found.
    return guard_cluster(RedisCluster(startup_nodes=nodes, require_full_coverage=False, **options))


def open_store(folder: Path | None) -> redis.Redis:
    """Return a client of the embedded store, which is started if needed."""
    from delayq.transport.embedded.connection_async import client  # noqa: PLC0415  # Windows has no fcntl

    return client(folder)


async def close(client: Client) -> None:
    """Close a client, and its connections to sentinels."""
    await client.aclose()
    if isinstance(client, redis.Redis):
        manager: Any = getattr(client.connection_pool, "sentinel_manager", None)
        for each in manager.sentinels if manager else ():
            await each.aclose()
    else:  # a cluster whose slots are unknown would leave these open
        for node in _nodes(client):
            await node.disconnect()


def _nodes(client: RedisCluster) -> list[Any]:
    manager = client.nodes_manager
    return [*{id(node): node for node in (*manager.startup_nodes.values(), *manager.nodes_cache.values())}.values()]


async def close_idle(client: Client) -> None:
    """Close the idle connections of a client."""
    if isinstance(client, redis.Redis):
        await client.connection_pool.disconnect(inuse_connections=False)
    else:
        for node in _nodes(client):
            await redis_py.close_idle(node)


async def check_server(client: Client) -> ServerInfo:
    """Refuse a server that is too old, and warn about settings that may lose messages, like `check_server`."""
    if isinstance(client, RedisCluster):
        await _find_nodes(client)
    found: list[ServerInfo] = []
    away: DelayqError | None = None
    for address, server in _servers(client):
        try:
            found.append(await _inspect(server, address))
        except (ServerUnreachable, ServerNotReady) as error:
            away = error
    return judge(found, away)


async def _find_nodes(client: RedisCluster) -> None:
    try:
        await client.initialize()
    except (RedisConnectionError, RedisTimeoutError):
        # redis-py asks the first master for the list of commands, even if only that one is away: ask another one.
        await client.nodes_manager.initialize()
        for node in reversed(client.get_primaries()):
            with contextlib.suppress(RedisError):
                await client.commands_parser.initialize(node)
                client._initialize = False  # noqa: SLF001  # it has no method for this
                return
        raise


async def _inspect(server: Any, address: str) -> ServerInfo:
    inspection, reply = inspecting(address), None
    try:
        while True:
            words = inspection.send(reply)
            try:
                reply = await server.execute_command(*words)
            except RedisError as error:
                reply = error
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]  # what the generator returns


def _servers(client: Client) -> Iterator[tuple[str, Any]]:
    if isinstance(client, RedisCluster):
        for node in client.get_primaries():
            yield node.name, node
        return
    pool: Any = client.connection_pool
    given = pool.connection_kwargs
    if hasattr(pool, "service_name"):
        yield f"the master of {pool.service_name}", client
    else:
        address = given["path"] if "path" in given else f"{given.get('host', 'localhost')}:{given.get('port', 6379)}"
        yield str(address), client
