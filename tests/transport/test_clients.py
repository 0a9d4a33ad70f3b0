"""What redis-py clients do when a connection fails."""

from __future__ import annotations

import itertools

import pytest
import redis
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as RedisConnectionError

from delayq.transport import clients
from delayq.transport.url import connect


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


def test_many_threads_can_hold_connections():
    client = connect("redis://localhost")
    assert isinstance(client, redis.Redis)
    made = [client.connection_pool.make_connection() for _ in range(1000)]
    assert len(set(map(id, made))) == 1000
