"""What redis-py clients do when a connection fails."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import redis
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from delayq.transport import clients
from delayq.transport.open_client import connect
from delayq.transport.open_client_async import connect as connect_async


def test_refused_login_is_not_retried():
    attempts = itertools.count(1)

    def refuse() -> None:
        raise AuthenticationError(f"attempt {next(attempts)}")

    with pytest.raises(AuthenticationError, match="attempt 1"):
        clients.retry(base=0.001).call_with_retry(refuse, lambda _: None)


def test_lost_connection_is_retried_a_few_times():
    attempts = itertools.count(1)

    def fail() -> None:
        raise RedisConnectionError(f"attempt {next(attempts)}")

    with pytest.raises(RedisConnectionError, match=f"attempt {clients.RETRIES + 1}"):
        clients.retry(base=0.001).call_with_retry(fail, lambda _: None)


@pytest.mark.parametrize("url", ["redis://:s@a", "rediss://:s@a", "unix://:s@/a", "redis+sentinel://:s@a,b/queue"])
@pytest.mark.parametrize("connect", [connect, connect_async], ids=["sync", "async"])
def test_text_of_a_pool_has_no_settings_which_redis_py_shows_in_errors(connect: Callable[[str], Any], url: str):
    pool = connect(url).connection_pool
    manager = getattr(pool, "sentinel_manager", None)
    pools = [each.connection_pool for each in manager.sentinels] if manager else [pool]
    assert {repr(each) for each in pools} == {"<Pool>"}


def test_many_threads_can_hold_connections():
    client = connect("redis://localhost")
    assert isinstance(client, redis.Redis)
    made = [client.connection_pool.make_connection() for _ in range(1000)]
    assert len(set(map(id, made))) == 1000
