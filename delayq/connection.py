"""The sync way to Redis: runs the calls that the operations yield."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from redis import Redis
from redis.client import NEVER_DECODE
from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError, RedisError, ResponseError

from delayq.calls import Call, Steps
from delayq.clients import REPEATS
from delayq.server import check_server, translate

T = TypeVar("T")
Client: TypeAlias = "Redis | RedisCluster"

KEYLESS = frozenset({"WAIT", "SCAN", "INFO", "TIME", "CONFIG GET"})
"""Commands that a cluster cannot route by their words: they go to the server of the call's key."""


class Connection:
    """Runs operations on a client, which it makes when it is first needed.

    Args:
        connect: makes the client.
    """

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._client: Client | None = None
        self._lock = threading.Lock()

    @property
    def client(self) -> Client:
        """The client, connected and its server checked.

        Raises:
            ServerTooOld, LoginRefused, ServerUnreachable
        """
        if self._client is None:
            with self._lock:
                if self._client is None:
                    client = self._connect()
                    check_server(client)
                    self._client = client
        return self._client

    def close(self) -> None:
        """Close the client; the next call makes a new one."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def do(self, steps: Steps[T], repeat: bool = True) -> T:
        """Run an operation to its end and return its result.

        Args:
            repeat: try again, for a second or two, when the connection fails; not for calls that must not run twice.
        """
        try:
            calls = next(steps)
            while True:
                try:
                    results = self.run(calls, repeat)
                except Exception as error:  # noqa: BLE001  # it is the operation's to handle
                    calls = steps.throw(error)
                else:
                    calls = steps.send(results)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # what the generator returns

    def run(self, calls: Sequence[Call[Any]], repeat: bool = True) -> list[Any]:
        """Run calls in one round trip; return their results, or the DelayqError that the server answered with.

        Raises:
            ServerError: the connection failed; calls may or may not have happened.
        """
        client = self.client
        token = REPEATS.set(repeat and all(call.repeats for call in calls))
        try:
            replies = self._send(client, calls)
            missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
            if missing:  # a new server, or SCRIPT FLUSH: send the texts, which the server keeps
                for i, reply in zip(missing, self._send(client, [calls[i] for i in missing], whole=True), strict=True):
                    replies[i] = reply
        except RedisError as error:
            raise translate(error) from error
        finally:
            REPEATS.reset(token)
        return [
            translate(reply) if isinstance(reply, RedisError) else call.read(reply)
            for call, reply in zip(calls, replies, strict=True)
        ]

    def _send(self, client: Any, calls: Sequence[Call[Any]], whole: bool = False) -> list[Any]:
        options: dict[str, Any] = {NEVER_DECODE: True}  # bytes, also from a client that decodes replies
        if isinstance(client, RedisCluster) and any(call.words()[0] in KEYLESS for call in calls):
            client = client.get_redis_connection(client.get_node_from_key(calls[0].key))
        if len(calls) == 1:
            try:
                return [client.execute_command(*calls[0].words(whole), **options)]
            except ResponseError as error:
                return [error]
        pipe = client.pipeline(transaction=False) if isinstance(client, Redis) else client.pipeline()
        for call in calls:
            pipe.execute_command(*call.words(whole), **options)
        return list(pipe.execute(raise_on_error=False))
