"""redis-py connections to an embedded store, which start its server if it is gone."""

from __future__ import annotations

import contextlib
import socket
import stat
from pathlib import Path
from typing import Any

import redis

from delayq.log import log
from delayq.model.server_url import has_unread_url
from delayq.transport.clients import DEFAULTS, retry
from delayq.transport.embedded.store import Address, Store
from delayq.transport.pool import Pool


class StoreConnection(redis.UnixDomainSocketConnection):
    """A connection to a store's server at its present address; starts the server if it is gone."""

    def __init__(self, store: Store, **settings: Any) -> None:
        super().__init__(**settings)  # type: ignore[no-untyped-call]
        self._store = store

    def _connect(self) -> socket.socket:
        self._store.join()
        address = self._store.address()
        if address is not None:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                return self._connect_to(address)
        return self._connect_to(self._store.start())

    def _connect_to(self, address: Address) -> socket.socket:
        self.path = address.socket
        connected: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
        return connected


class StorePool(Pool):
    """The connections of a client to a store. Closing them ends this use of the store."""

    def __init__(self, store: Store) -> None:
        # A killed server is back within a tenth of a second, so the first retry comes sooner than for a remote one.
        settings = DEFAULTS | {"path": str(store.folder), "retry": retry(base=0.05)}
        super().__init__(connection_class=StoreConnection, store=store, **settings)
        self._store = store

    def owns_connection(self, connection: Any) -> bool:
        """Return whether a connection belongs to this pool; as this runs before each use, it also checks the folder."""
        self._store.look()
        return bool(super().owns_connection(connection))

    def disconnect(self, inuse_connections: bool = True) -> None:
        super().disconnect(inuse_connections)
        if inuse_connections:
            self._store.leave()


def client(store: Store) -> redis.Redis:
    """Start the server of `store` and return a client; the first client of the process logs where the data are."""
    try:
        store.join()
        address = store.start()
    except BaseException:
        store.leave()
        raise
    announce(store, address)
    return redis.Redis.from_pool(StorePool(store))


def announce(store: Store, address: Address) -> None:
    """Log where the data are, and whether others may change them, once in each process."""
    if store.folder not in _announced:
        _announced.add(store.folder)
        log.info("embedded store opened", path=str(store.folder), server=address.server, pid=address.pid)
        mode = stat.S_IMODE(store.folder.stat().st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            folder, remedy = str(store.folder), "set its mode to 700"
            log.warning("embedded store writable by others", path=folder, mode=f"{mode:o}", remedy=remedy)


def note_unread_url(folder: Path) -> None:
    """Log, once in each process, that a store is used although REDIS_URL is set."""
    if has_unread_url() and folder not in _warned:
        _warned.add(folder)
        log.warning("REDIS_URL is not read", path=str(folder), remedy="set DELAYQ_URL to use that server")


_announced: set[Path] = set()
_warned: set[Path] = set()
