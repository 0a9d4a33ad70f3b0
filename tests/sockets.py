"""The sockets of this process: whoever opens one closes it."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from tests.waiting import eventually

Socket: TypeAlias = tuple[int, int]  # its descriptor, which another one may have later, and its inode


@contextlib.contextmanager
def all_closed(seconds: float = 10) -> Iterator[None]:
    """Hold a block to closing what it opens; what threads that were told to end have open is waited for.

    Raises:
        AssertionError: sockets are open that were not before.
    """
    before = open_sockets()
    yield
    if not eventually(lambda: open_sockets() <= before, seconds):
        raise AssertionError(f"left open: {', '.join(map(described, open_sockets() - before))}")


def open_sockets() -> set[Socket]:
    """Return those that are open now."""
    found = set()
    for path in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # the descriptor of this listing is closed by now
            status = os.fstat(int(path.name))
            if stat.S_ISSOCK(status.st_mode):
                found.add((int(path.name), status.st_ino))
    return found


def described(opened: Socket) -> str:
    """Return where a socket leads, as far as it is open yet."""
    try:
        with socket.socket(fileno=os.dup(opened[0])) as same:
            return f"fd={opened[0]} {same.family.name} to {same.getpeername()!r}"
    except OSError as error:
        return f"fd={opened[0]}: {error}"
