"""One process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow import fs

from delayq.errors import LakeMismatch
from delayq.lake.object_store import place


@contextmanager
def exclusive_lock(path: str, what: str) -> Iterator[None]:
    """Hold a lock while the block runs; it is released when the process ends, even if it is killed.

    Object stores have no locks: there, the user must not start two jobs for the same data.

    Args:
        path: the lock file, beside the data.
        what: what the process is doing, for the error.

    Raises:
        LakeMismatch: another process holds the lock.
    """
    system, inner = place(path)
    if not isinstance(system, fs.LocalFileSystem):
        yield
        return
    Path(inner).parent.mkdir(parents=True, exist_ok=True)
    with Path(inner).open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LakeMismatch(f"another process is {what}: wait until it ends, or stop it, and start again") from error
        yield
