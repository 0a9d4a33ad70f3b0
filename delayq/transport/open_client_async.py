"""The client of a queue or a topic in the async API."""

from __future__ import annotations

import inspect
from typing import Any

from delayq.errors import InvalidInput
from delayq.model.server_url import Makers, chosen_url, make
from delayq.transport import clients_async
from delayq.transport.executor_async import Client


def check_client(url: str | None, redis: Any) -> None:
    """Raise InvalidInput if a server is given twice, or `redis` is not a client of redis.asyncio."""
    if url is not None and redis is not None:
        raise InvalidInput("url= and redis= were given: give one of them")
    if redis is not None and not hasattr(redis, "connection_pool") and not hasattr(redis, "nodes_manager"):
        raise InvalidInput(f"redis is of type {type(redis).__name__}, not a redis-py client: use url= for an address")
    if redis is not None and not inspect.iscoroutinefunction(redis.execute_command):
        raise InvalidInput(
            f"redis is of type {type(redis).__name__}, not a client of redis.asyncio: use it with delayq.Queue"
        )


def connect(url: str | None = None) -> Client:
    """Return a client for `url`, else for DELAYQ_URL, else for the embedded store of this folder."""
    makers = Makers(
        clients_async.single,
        clients_async.unix,
        clients_async.sentinel,
        clients_async.cluster,
        clients_async.open_store,
    )
    client: Client = make(chosen_url(url) or "embedded://", makers)
    return client
