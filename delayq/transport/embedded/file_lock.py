"""A lock on a file that ends with its holder, however that ends."""

from __future__ import annotations

import fcntl
import os
import weakref
from pathlib import Path
from typing import ClassVar, Self


class FileLock:
    """A lock on a file, held until `close`, or until the last process is gone that inherited it.

    Raises:
        BlockingIOError: another process holds it.
    """

    exclusive: ClassVar[weakref.WeakSet[FileLock]] = weakref.WeakSet()

    def __init__(self, path: Path, kind: int) -> None:
        self.path = path
        self.file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self.close = weakref.finalize(self, os.close, self.file)
        self.close.atexit = False  # what runs at exit may still use the store: the kernel closes later
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
        """Whether the file is no longer where it was: it was moved or deleted, and another may have its name."""
        try:
            there = self.path.stat()
        except OSError:
            return self.close.alive
        return self.close.alive and not os.path.samestat(there, os.fstat(self.file))

    @classmethod
    def forget_in_child(cls) -> None:
        """A process forked by another thread while the keeper starts would hold the keeper's lock, for no use."""
        for lock in list(cls.exclusive):
            lock.close()


os.register_at_fork(after_in_child=FileLock.forget_in_child)
