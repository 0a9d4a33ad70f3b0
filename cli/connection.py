"""The server that a command works on."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

from redis.exceptions import RedisClusterException, RedisError

from delayq.model.validation import check_prefix, check_queue_name
from delayq.protocol.discovery import Kind, name_in, pattern
from delayq.queue import Queue
from delayq.topic import Topic
from delayq.transport.executor import Client, Executor
from delayq.transport.open_client import connect
from delayq.transport.server_check import translate


class ServerOptions:
    """A way to a server, connected when first needed, and the queues on it.

    Args:
        url: of the server; None for the embedded store.
        prefix: what the queues' keys begin with.
    """

    def __init__(self, url: str | None, prefix: str) -> None:
        self.url = url
        self.prefix = check_prefix(prefix)
        self._connection = Executor(lambda: connect(url))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def client(self) -> Client:
        """The client, connected and its server checked."""
        return self._connection.client

    def queue(self, name: str, **settings: Any) -> Queue:
        """Return a queue with the number of shards that is recorded; a bad name is refused first of all."""
        return Queue(check_queue_name(name), redis=self.client, prefix=self.prefix, shards=None, **settings)

    def topic(self, name: str, ledger: bool = False) -> Topic:
        """Return a topic with the number of shards that is recorded; a bad name is refused first of all.

        Args:
            ledger: the name is that of a queue, whose ledger it is.
        """
        if ledger:
            return self.queue(name).events
        return Topic(check_queue_name(name, "topic name"), redis=self.client, prefix=self.prefix, shards=None)

    def queue_names(self) -> list[str]:
        """Return the names of all queues that are recorded, in order: those ever sent to, consumed or paused."""
        return sorted(set(self.each_queue_name()))

    def each_queue_name(self) -> Iterator[str]:
        """Yield the names as they are found, some of them twice, perhaps: a server of many keys takes its time."""
        return self._each_name("queue")

    def each_topic_name(self) -> Iterator[str]:
        """Yield the names of all topics that are recorded, as they are found, likewise."""
        return self._each_name("topic")

    def _each_name(self, kind: Kind) -> Iterator[str]:
        try:
            for key in self.client.scan_iter(match=pattern(self.prefix, kind), count=1000):
                name = name_in(key, self.prefix, kind)
                if name is not None:
                    yield name
        except (RedisError, RedisClusterException) as error:
            raise translate(error) from error
