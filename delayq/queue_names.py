# Made from delayq/aio/queue_names.py by `make faces`: change that file.
"""The queues on a server."""

from __future__ import annotations

from typing import Any

from redis.exceptions import RedisClusterException, RedisError

from delayq.model.validation import check_prefix
from delayq.protocol.discovery import name_in, pattern
from delayq.transport.executor import Client, Executor
from delayq.transport.open_client import check_client, connect
from delayq.transport.server_check import translate
from delayq.transport.server_guard import labelled


def queues(*, url: str | None = None, redis: Client | None = None, prefix: str = "delayq") -> list[str]:
    """Return the names of the queues on a server, in order: those ever sent to, consumed, configured or paused.

    Each call scans the names of all keys: keep the result if there are many.

    Args:
        url: of the server. Without `url` and `redis`: DELAYQ_URL, or else the embedded store.
        redis: a client to use instead; it stays open.
        prefix: of the queues' keys.

    Raises:
        InvalidInput: a bad URL or prefix.
        ServerError: the server does not answer, or this user may not list keys.
    """
    check_client(url, redis)
    check_prefix(prefix)
    label = labelled("delayq.queues()", redis)
    executor = Executor(lambda: connect(url) if redis is None else redis, redis is not None, label)
    try:
        client: Any = executor.connected()
        names = [name_in(key, prefix, "queue") for key in client.scan_iter(pattern(prefix, "queue"), count=1000)]
    except (RedisError, RedisClusterException) as error:
        raise translate(error) from error
    finally:
        executor.close()
    return sorted({name for name in names if name is not None})
