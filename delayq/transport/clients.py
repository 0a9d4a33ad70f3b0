"""redis-py clients whose settings keep calls from hanging for ever, one function for each way to reach a server.

``settings`` apply to each connection: those of `DEFAULTS`, with the caller's additions and changes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeAlias, TypeVar

import redis
from redis.backoff import EqualJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisClusterException,
    RedisError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel

from delayq.transport import redis_py
from delayq.transport.pool import Pool, SentinelPool, WholePool
from delayq.transport.redis_py import DRIVER_INFO

T = TypeVar("T")
Client: TypeAlias = "redis.Redis | RedisCluster"
Address: TypeAlias = tuple[str, int]

FAILURES = (RedisConnectionError, RedisTimeoutError, OSError)  # OSError: a refused connection
RETRIES = 3  # 0.7 to 1.4 s in all: enough for a server's restart, and short enough to report an outage soon
# Of a call, after which it is not sent again: with the timeouts below, a call to a frozen server takes 10 s. A dead
# machine that a successor replaces within 8 s costs a call one timeout of each kind, and is then survived.
RETRY_SECONDS = 10.0
DEFAULTS: dict[str, Any] = {
    # A host that drops packets would block a caller for the kernel's two minutes; 3 s allow one lost SYN to be resent.
    "socket_connect_timeout": 3.0,
    # A frozen server or a cut cable would block a call for ever; none of our scripts takes a second.
    "socket_timeout": 5.0,
    # A firewall drops idle connections, and the next call would wait for its timeout: a PING detects that first.
    "health_check_interval": 30.0,
    # redis-py's limit of 100 makes the 101st thread fail; a server's default is 10,000.
    "max_connections": 10_000,
    # redis-py 5 retries only after these errors, regardless of `retry`.
    "retry_on_error": list(FAILURES),
    # Without a name, CLIENT LIST does not show whose connections these are.
    "client_name": "delayq",
    # RESP3 changes the form of some replies, and mixes in push messages.
    "protocol": 2,
} | DRIVER_INFO
KEEPALIVE: dict[str, Any] = {
    "socket_keepalive": True,
    # A lost peer is detected after 45 s, instead of two hours with the kernel's own settings.
    "socket_keepalive_options": {
        getattr(socket, name): value
        for name, value in {"TCP_KEEPIDLE": 30, "TCP_KEEPALIVE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}.items()
        if hasattr(socket, name)
    },
}


class Maker(NamedTuple):
    """Makes clients of redis-py, or of redis.asyncio.

    Attributes:
        package: one of the two.
        pool: of its connections, and `sentinel_pool` of those behind sentinels.
        sentinels: asks sentinels for the master.
        retry: returns the retry rule for failed connections.
        never: the rule for sentinels.
    """

    package: Any
    pool: type[WholePool]
    sentinel_pool: Any
    sentinels: Any
    retry: Callable[..., Any]
    never: Any

    def single(self, address: Address, settings: dict[str, Any], tls: bool = False) -> Any:
        """Return a client of the server at `address`."""
        host, port = address
        kind = self.package.SSLConnection if tls else self.package.Connection
        options = DEFAULTS | KEEPALIVE | {"host": host, "port": port} | with_retry(settings, self.retry)
        return self._of(kind, options)

    def unix(self, path: str, settings: dict[str, Any]) -> Any:
        """Return a client of the server that listens on the socket at `path`."""
        options = DEFAULTS | {"path": path} | with_retry(settings, self.retry)
        return self._of(self.package.UnixDomainSocketConnection, options)

    def _of(self, kind: Any, options: dict[str, Any]) -> Any:
        pool: Any = self.pool
        return self.package.Redis.from_pool(pool(connection_class=kind, **options))

    def sentinel(
        self,
        addresses: Sequence[Address],
        service: str,
        settings: dict[str, Any],
        login: dict[str, Any],
        tls: bool = False,
    ) -> Any:
        """Return a client of the master that the sentinels at `addresses` name for `service`; `login` is for them."""
        options = DEFAULTS | KEEPALIVE | with_retry(settings, self.retry) | {"ssl": tls}
        # A dead sentinel would delay every new connection; without a retry, the next one is asked at once.
        own = {name: value for name, value in options.items() if name not in {"db", "username", "password"}}
        sentinels = self.sentinels(addresses, sentinel_kwargs=own | login | {"retry": self.never})
        for each in sentinels.sentinels:
            self.pool.guard(each)
        return sentinels.master_for(service, connection_pool_class=self.sentinel_pool, **options)


def cluster(addresses: Sequence[Address], settings: dict[str, Any], tls: bool = False) -> RedisCluster:
    """Return a client of the cluster that nodes at `addresses` belong to; asks them for its slots at once.

    Raises:
        redis.exceptions.RedisClusterException: none of them answers, they are not a cluster, or the user lacks a right.
    """
    nodes = [ClusterNode(host, port) for host, port in addresses]
    options = DEFAULTS | KEEPALIVE | with_retry(settings, retry) | {"ssl": tls}
    # While a slot has no node, the others must still be served, and slots that moved must be found.
    return _Cluster(nodes, require_full_coverage=False, **options)


def close(client: Client) -> None:
    """Close a client, and its connections to sentinels, which redis-py leaves to the garbage collector."""
    client.close()
    for pool in _pools(client):
        pool.disconnect()


def close_idle(client: Client) -> None:
    """Close the idle connections of a client."""
    for pool in _pools(client):
        redis_py.close_idle_of(pool)


def _pools(client: Any) -> list[redis.ConnectionPool]:
    """Return the pools of all servers that a client has spoken to, including sentinels."""
    if isinstance(client, RedisCluster):
        nodes = [node.redis_connection for node in client.get_nodes()]
        return [node.connection_pool for node in nodes if node is not None]
    sentinels = getattr(client.connection_pool, "sentinel_manager", None)
    return [client.connection_pool, *(each.connection_pool for each in (sentinels.sentinels if sentinels else ()))]


def with_retry(settings: dict[str, Any], retry: Callable[..., Any]) -> dict[str, Any]:
    """Return settings for redis-py, which has a retry rule in the place of our own `retry_timeout`."""
    seconds = settings.get("retry_timeout", RETRY_SECONDS)
    return {name: value for name, value in settings.items() if name != "retry_timeout"} | {"retry": retry(seconds)}


def retry(seconds: float = RETRY_SECONDS, base: float = 0.1) -> Retry:
    """Return the retry rule for failed connections: wait `base` seconds first, then twice as long each time.

    Args:
        seconds: after which a call is not sent again.
    """
    rule = _Retry(EqualJitterBackoff(base=base, cap=1), RETRIES, FAILURES)
    rule.seconds = seconds
    return rule


def is_late(client: Any, began: float) -> bool:
    """Whether a call that began at `began`, as `time.perf_counter` says, must not be sent again."""
    rule = client.connection_pool.connection_kwargs.get("retry")
    return isinstance(rule, _Retry) and time.perf_counter() >= began + rule.seconds


def seconds_on_cluster(client: Any) -> float:
    """Return how many seconds after its begin a call on a cluster may be sent again, for both APIs."""
    seconds: float = getattr(getattr(client, "retry", None), "seconds", RETRY_SECONDS)  # a caller's client has no rule
    return seconds


REPEATS: ContextVar[bool] = ContextVar("REPEATS", default=True)
"""Whether a call may be sent again if its connection failed and it is unknown whether the server ran it."""

BEGAN: ContextVar[float | None] = ContextVar("BEGAN", default=None)
"""When the call began that redis-py is to connect for or to send, as `time.perf_counter` says; None for now."""


def mark(repeats: bool, began: float) -> None:
    """Set `REPEATS` and `BEGAN` for what redis-py is about to do; `unmark` is due once `BEGAN` is set."""
    BEGAN.set(began)
    REPEATS.set(repeats)


def unmark() -> None:
    """Set `REPEATS` and `BEGAN` to their defaults, not to what they were: that may be what an interrupt has left."""
    REPEATS.set(True)
    BEGAN.set(None)


HURRIES: ContextVar[Callable[[], bool]] = ContextVar("HURRIES", default=lambda: False)
"""Whether the caller is about to end, perhaps since the call began; failed calls are then not sent again."""


IMPATIENT: ContextVar[bool] = ContextVar("IMPATIENT", default=False)
"""Whether the caller serves several nodes of a cluster, so that none of its calls may wait for an unavailable one."""


@contextmanager
def impatient(is_spread: bool) -> Iterator[None]:
    """Set `IMPATIENT` for the calls in a `with` block, if they serve several shards."""
    token = IMPATIENT.set(is_spread)
    try:
        yield
    finally:
        IMPATIENT.reset(token)


class _Retry(Retry):
    """Like redis-py's, with five exceptions.

    A call that must not run twice, such as a claim, is not repeated: see REPEATS. Connecting within a call is not
    repeated either, as a frozen server would otherwise be tried 13 times. A refused login stays refused, and some
    servers lock out a user who insists. A port without TLS stays silent. A call that has taken long is not repeated.

    Attributes:
        seconds: how long.
    """

    seconds = RETRY_SECONDS

    def call_with_retry(self, do: Callable[[], T], *args: Any, **kwargs: Any) -> T:
        began = BEGAN.get()
        end = (time.perf_counter() if began is None else began) + self.seconds

        def once() -> T | _Refused:
            retries, self._retries = self._retries, 0
            try:
                return do()
            except (AuthenticationError, AuthorizationError) as error:
                return _Refused(error)
            except (RedisTimeoutError, TimeoutError) as error:
                if lacks_handshake(error):
                    return _Refused(error)
                raise
            finally:
                self._retries = 0 if HURRIES.get()() or time.perf_counter() >= end else retries

        retries = self._retries
        try:
            if not REPEATS.get():
                self._retries = 0
            result = super().call_with_retry(once, *args, **kwargs)
        finally:
            self._retries = retries
        if isinstance(result, _Refused):
            raise result.error
        return result


class _Refused(NamedTuple):
    error: Exception


def lacks_handshake(error: Exception) -> bool:
    """Whether a server accepted a connection and then did not answer the TLS handshake."""
    return "handshake operation timed out" in f"{error} {error.__context__}"


def unanswered(sentinels: Sequence[Any]) -> RedisConnectionError:
    """Return the error for sentinels of which none can be reached."""
    options = (each.connection_pool.connection_kwargs for each in sentinels)
    found = (f"{each['host']}:{each['port']}" for each in options)
    return RedisConnectionError(f"none of the sentinels answers: {', '.join(found)}")


class _Sentinels(Sentinel):
    """Like redis-py's, but reports sentinels that refuse us instead of treating them as unavailable.

    After a refusal the next sentinel is asked; if none answers, the refusal is raised. The error names sentinels of
    which none can be reached.
    """

    def discover_master(self, service_name: str) -> Address:
        """Return the master's address.

        Raises:
            redis.exceptions.AuthenticationError, redis.exceptions.NoPermissionError: no sentinel lets us ask.
            redis.sentinel.MasterNotFoundError: no answering sentinel knows an available master.
            redis.exceptions.ConnectionError: no sentinel answers.
        """
        refusal, answered = None, False
        for sentinel in self.sentinels:
            try:
                states: Any = sentinel.sentinel_masters()
            except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
                options = sentinel.connection_pool.connection_kwargs
                refusal = type(error)(f"the sentinel {options['host']}:{options['port']}: {error}")
            except (RedisConnectionError, RedisTimeoutError):
                continue
            else:
                answered = True
                state = states.get(service_name)
                if state and state["is_master"] and not (state["is_sdown"] or state["is_odown"]):
                    # Ask it first from now on. This makes a new list, as another thread may be iterating over this one.
                    self.sentinels = [sentinel, *(each for each in self.sentinels if each is not sentinel)]
                    return state["ip"], state["port"]
        if refusal is not None and not answered:
            raise refusal
        if not answered:
            raise unanswered(self.sentinels)
        raise MasterNotFoundError(f"No master found for {service_name!r}")


class _Cluster(RedisCluster):
    """Like redis-py's, with pools that survive interrupts.

    If it cannot be made, it closes its connections and always raises the same class.
    """

    def __init__(self, nodes: list[ClusterNode], **options: Any) -> None:
        try:
            super().__init__(startup_nodes=nodes, **options)
        except (RedisError, RedisClusterException, IndexError) as error:
            found = self.nodes_manager.nodes_cache.values() if hasattr(self, "nodes_manager") else ()
            for node in (*nodes, *found):
                if node.redis_connection is not None:
                    node.redis_connection.close()
            if isinstance(error, RedisClusterException):
                raise
            if isinstance(error, IndexError):  # of a list of masters
                raise RedisClusterException("no node of the cluster has a slot yet") from error
            raise RedisClusterException(str(error)) from error  # a node's error to COMMAND is not wrapped
        manager: Any = self.nodes_manager
        create = manager.create_redis_node
        manager.create_redis_node = lambda *args, **settings: Pool.guard(create(*args, **settings))
        for node in manager.nodes_cache.values():
            if node.redis_connection is not None:
                Pool.guard(node.redis_connection)


_MAKER = Maker(redis, Pool, SentinelPool, _Sentinels, retry, Retry(NoBackoff(), 0))
single, unix, sentinel = _MAKER.single, _MAKER.unix, _MAKER.sentinel
