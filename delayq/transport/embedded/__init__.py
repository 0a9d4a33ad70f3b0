"""The embedded store: a real redis-server with its data in a folder, started by its first user, stopped after its last.

`open_store` returns a client of it. All processes that open the same folder share one server, which writes every change
to an append-only file there. It needs no setting, no port and no daemon, and a killed user does no damage:

    process ──── shared lock on users.lock ────┐
    process ──── shared lock on users.lock ────┼─── keeper (waits for that lock) ─── redis-server ─── appendonlydir/
    process ──── shared lock on users.lock ────┘

A forked process counts as a user as long as it lives, because it holds the clients of its parent. The folder must be on
a local disk, as it needs file locks.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from delayq.errors import NoEmbeddedServer
from delayq.model.server_url import default_folder

if TYPE_CHECKING:
    import redis


def open_store(folder: Path | None = None) -> redis.Redis:
    """Return a client of the store in `folder`, created if missing; None means DELAYQ_HOME, or else ``./.delayq``.

    The store is in use until the client is closed. Using a closed client opens the store again.

    Raises:
        InvalidURL: DELAYQ_REQUIRE_URL is set, and `folder` is None.
        NoEmbeddedServer: no redis-server fits this machine.
        StoreTooNew: a newer server than this machine's wrote the store.
        StoreError: the folder cannot be used, or the server does not start on it.
    """
    if sys.platform == "win32":
        raise NoEmbeddedServer("the embedded store needs Linux or macOS: set DELAYQ_URL to a running server")
    from delayq.transport.embedded.connection import client, note_unread_url  # noqa: PLC0415  # Windows has no fcntl
    from delayq.transport.embedded.store import Store  # noqa: PLC0415

    where = folder or default_folder()
    if folder is None:
        note_unread_url(where)
    return client(Store(where.absolute()))
