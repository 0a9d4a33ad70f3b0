"""redis.asyncio connections to an embedded store, which start its server if it is gone."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

from redis import asyncio as redis

from delayq.model.server_url import default_folder
from delayq.transport.clients import DEFAULTS
from delayq.transport.embedded.connection import announce, note_unread_url
from delayq.transport.embedded.store import Address, Store
from delayq.transport.pool_async import Pool
from delayq.transport.retry_async import retry


class StoreConnection(redis.UnixDomainSocketConnection):
    """A connection to a store's server at its present address; starts the server if it is gone."""

    def __init__(self, store: Store, **settings: Any) -> None:
        super().__init__(**settings)
        self._store = store

    async def _connect(self) -> None:
        address = await asyncio.to_thread(self._joined)
        if address is not None:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                await self._connect_to(address)
                return
        await self._connect_to(await asyncio.to_thread(self._store.start))

    def _joined(self) -> Address | None:
        self._store.join()
        return self._store.address()

    async def _connect_to(self, address: Address) -> None:
        announce(self._store, address)
        self.path = address.socket
        await super()._connect()  # type: ignore[no-untyped-call]


class StorePool(Pool):
    """The connections of a client to a store. Closing them ends this use of the store."""

    def __init__(self, store: Store) -> None:
        # A killed server is back within a tenth of a second, so the first retry comes sooner than for a remote one.
        settings = DEFAULTS | {"path": str(store.folder), "retry": retry(base=0.05)}
        super().__init__(connection_class=StoreConnection, store=store, **settings)
        self._store = store

    async def get_connection(self, *args: Any, **options: Any) -> Any:
        """Lend a connection, after a check of the store's folder."""
        self._store.look()
        return await super().get_connection(*args, **options)

    async def disconnect(self, inuse_connections: bool = True) -> None:
        await super().disconnect(inuse_connections)
        if inuse_connections:
            await asyncio.to_thread(self._store.leave)


def client(folder: Path | None) -> redis.Redis:
    """Return a client of the store in `folder`, by default DELAYQ_HOME or `.delayq`; it is started when needed."""
    where = folder or default_folder()
    if folder is None:
        note_unread_url(where)
    return redis.Redis.from_pool(StorePool(Store(where.absolute())))
