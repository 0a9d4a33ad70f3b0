"""The server that a command works on."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any, Self

from delayq.connection import Client, Connection
from delayq.names import check_prefix, check_queue_name
from delayq.queue import Queue, connect


class Server:
    """A way to a server, connected when first needed, and the queues on it.

    Args:
        url: of the server; None for the embedded store.
        prefix: what the queues' keys begin with.
    """

    def __init__(self, url: str | None, prefix: str) -> None:
        self.url = url
        self.prefix = check_prefix(prefix)
        self._connection = Connection(lambda: connect(url))

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

    def queue_names(self) -> list[str]:
        """Return the names of all queues that were ever sent to, in order."""
        pattern = re.sub(r"([*?\[\]\\])", r"\\\1", self.prefix)
        keys = self.client.scan_iter(match=f"{pattern}:{{*}}:meta", count=1000)
        names = {bytes(key).decode().removeprefix(f"{self.prefix}:{{").removesuffix("}:meta") for key in keys}
        return sorted(name for name in names if "#" not in name)  # with a number: another shard of a queue
