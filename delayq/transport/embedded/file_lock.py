"""A file lock that is released when its holder ends, even if it is killed."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path
from typing import ClassVar, Self


class FileLock:
    """A lock on a file, held until `close`, or until the last process that inherited it is gone.

    Raises:
        BlockingIOError: another process holds it.
    """

    exclusive: ClassVar[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, path: Path, kind: int) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.close = weakref.finalize(self, os.close, self.file)
        self.close.atexit = False  # exit handlers may still use the store, and the kernel closes the file later
        try:
            fcntl.flock(self.file, kind | fcntl.LOCK_NB)
        except BaseException:
            self.close()
            raise
        if kind == fcntl.LOCK_EX:
            self.exclusive.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_astray(self) -> bool:
        """Whether the file was moved or deleted; another file may have its name now."""
        try:
            there = self.path.stat()
        except OSError:
            return self.close.alive
        return self.close.alive and not os.path.samestat(there, os.fstat(self.file))

    @classmethod
    def forget_in_child(cls) -> None:
        """Close exclusive locks in a forked child, which would otherwise hold the lock of a starting keeper."""
        for lock in list(cls.exclusive):
            lock.close()


os.register_at_fork(after_in_child=FileLock.forget_in_child)
