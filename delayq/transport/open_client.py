"""The client of a queue or a topic: from a URL, the environment, or the embedded store."""

from __future__ import annotations

import inspect

from redis.exceptions import RedisClusterException

from delayq.errors import InvalidInput
from delayq.model.server_url import Makers, chosen_url, make
from delayq.transport import clients
from delayq.transport.embedded import open_store
from delayq.transport.executor import Client
from delayq.transport.server_check import translate


def check_client(url: str | None, redis: object) -> None:
    """Raise InvalidInput if a server is given twice, or `redis` is not a client of redis-py."""
    if url is not None and redis is not None:
        raise InvalidInput("url= and redis= were given: give one of them")
    if redis is not None and not hasattr(redis, "connection_pool") and not hasattr(redis, "nodes_manager"):
        raise InvalidInput(f"redis is of type {type(redis).__name__}, not a redis-py client: use url= for an address")
    if inspect.iscoroutinefunction(getattr(redis, "execute_command", None)):
        raise InvalidInput(
            f"redis is of type {type(redis).__name__}, a client of redis.asyncio: use it with delayq.aio"
        )


def connect(url: str | None = None) -> Client:
    """Return a client for `url`, else for DELAYQ_URL, else for the embedded store of this folder.

    Only redis+cluster and embedded connect at once.

    Raises:
        InvalidURL: from `make`.
        ServerError: no node of the cluster is available.
        StoreError: the embedded store is not available.
    """
    makers = Makers(clients.single, clients.unix, clients.sentinel, clients.cluster, open_store)
    try:
        client: Client = make(chosen_url(url) or "embedded://", makers)
    except RedisClusterException as error:
        raise translate(error) from error
    return client
