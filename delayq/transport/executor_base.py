"""What the executors of both APIs have in common."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from redis.exceptions import RedisError

from delayq.model import server_guard
from delayq.model.text import printable_id
from delayq.protocol.command import Command
from delayq.transport.cluster_calls import ClusterCalls
from delayq.transport.script_cache import ScriptCache, missing_scripts
from delayq.transport.server_check import translate

checked: WeakSet[Any] = WeakSet()
"""Clients of one server that was checked: other queues and topics that use them need not ask it again."""

C = TypeVar("C")
K = TypeVar("K", bound=ClusterCalls)


class ExecutorBase(Generic[C, K]):
    """Runs operations on a client, which it creates when it is first needed.

    Args:
        connect: creates the client, or returns a shared one.
        shared: whether others use the client too; it then stays open, and connections are given back after each call.
        label: what it is for, such as "queue emails"; None if its server is in memory. See `server_guard`.
    """

    def __init__(self, connect: Callable[[], C], shared: bool, label: str | None) -> None:
        self._connect = connect
        self._label = label
        self._shared = shared
        self._client: C | None = None
        self._cluster: K | None = None
        self._script_cache = ScriptCache()

    def spans_nodes(self) -> bool:
        """Whether it is known that the server is a cluster."""
        return self._cluster is not None

    def is_away(self, key: str) -> bool:
        """Whether the node of a key, in a cluster, is known to be unavailable."""
        return self._cluster is not None and self._cluster.is_away(key)

    def lose(self, key: str, error: Exception) -> None:
        """Note that the node of a key, in a cluster, has not answered in time."""
        if self._cluster is not None:
            self._cluster.lose(key, error)

    def _heed_guard(self) -> None:
        if server_guard.blocks:
            server_guard.check(self._label)

    def _mended(
        self, calls: Sequence[Command[Any]], results: list[Any]
    ) -> Generator[list[Command[Any]], list[Any], list[Any]]:
        """Yield the calls whose scripts the server lacks, to be sent with the scripts' texts, which the server keeps.

        Returns:
            the results of all calls, or the DelayqError that the server answered with.
        """
        self._script_cache.note(calls, results)
        missing = missing_scripts(calls, results)
        if missing:  # a new server, or SCRIPT FLUSH
            try:
                again = yield [calls[i] for i in missing]
            except RedisError as error:
                if len(missing) == len(calls):
                    raise
                self._script_cache.forget()
                again = [error] * len(missing)  # keep the others' results, which may be handed-out messages
            self._script_cache.note([calls[i] for i in missing], again)
            for i, result in zip(missing, again, strict=True):
                results[i] = result
        return [
            translate(result, key=printable_id(call.key)) if isinstance(result, RedisError) else result
            for call, result in zip(calls, results, strict=True)
        ]
