"""A slow disk, as a server sees it: the thread that waits for the disk is stopped.

Needs Linux, and the right to trace a child.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207
WALL = 0x40000000  # for waitpid: include threads
SYNCING_THREAD = "bio_aof"  # prefix of the name of the Redis thread that calls fsync every second


@contextmanager
def slow_disk(pid: int) -> Iterator[None]:
    """Let no fsync of a server's append-only file finish; the server may be killed meanwhile.

    Args:
        pid: a redis-server, child of this process, with `appendfsync everysec`.

    Raises:
        OSError: this is not possible here.
    """
    thread = next(
        (int(task.name) for task in Path(f"/proc/{pid}/task").glob("*") if _name(task).startswith(SYNCING_THREAD)), 0
    )
    _ptrace(PTRACE_SEIZE, thread)
    _ptrace(PTRACE_INTERRUPT, thread)
    os.waitpid(thread, WALL)
    try:
        yield
    finally:
        try:
            _ptrace(PTRACE_DETACH, thread)
        except ProcessLookupError:
            os.waitpid(thread, WALL)  # otherwise the end of the process would never be seen


def _name(task: Path) -> str:
    return (task / "comm").read_text()


def _ptrace(request: int, thread: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "ptrace") or not thread:
        raise OSError("no thread to trace here")
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(request, thread, None, None) == -1:
        raise OSError(number := ctypes.get_errno(), os.strerror(number))
