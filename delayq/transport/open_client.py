"""The client of a queue or a topic: from a URL, the environment, or the embedded store."""

from __future__ import annotations

import inspect
import os

from delayq.errors import InvalidInput, InvalidURL
from delayq.transport import url as urls
from delayq.transport.embedded import open_store
from delayq.transport.executor import Client


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
    """Return a client for `url`, else for DELAYQ_URL, else for the embedded store of this folder."""
    url = chosen_url(url)
    return urls.connect(url) if url else open_store()


def chosen_url(url: str | None) -> str | None:
    """Return `url`, else DELAYQ_URL; None for the embedded store."""
    if url == "":
        raise InvalidURL("url='' is empty: give a URL, or None for DELAYQ_URL or the embedded store")
    if url is None and os.environ.get("DELAYQ_URL") == "":  # such as from "$REDIS_URL" when that is not set
        raise InvalidURL("DELAYQ_URL is empty: set it to a URL, or unset it for the embedded store")
    return url or os.environ.get("DELAYQ_URL")
