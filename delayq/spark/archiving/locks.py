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
    """Hold a lock while the block runs; it ends with the process, also when that is killed.

    Stores of objects have no locks: there, whoever starts the jobs sees to it that no two of them do the same.

    Args:
        path: of the lock, a file beside the data.
        what: is done, for the error.

    Raises:
        LakeMismatch: another process holds the lock.
    """
    system, inner = place(path)
    if not isinstance(system, fs.LocalFileSystem):
        yield
        return
    Path(inner).parent.mkdir(parents=True, exist_ok=True)
    with Path(inner).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise LakeMismatch(f"another process is {what}: let it end, or stop it, before this one starts") from error
        yield
