"""Ends the programs of a process that was killed: a small process that outlives it for a moment.

A killed process cannot end its programs, and no kernel does it in its place: PR_SET_PDEATHSIG of Linux acts when the
thread that started a program ends, and the program's own subprocesses do not inherit it.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

from delayq.runtime import watch_groups

# The program's group is known before the program runs, even if its starter is killed in this moment. If the watcher is
# killed, the program runs all the same.
_ANNOUNCED = 'trap "" PIPE; echo "+$$" 2>/dev/null >/dev/fd/{}; trap - PIPE; exec /bin/sh -c "$0"'


class GroupWatcher:
    """Starts shell commands in sessions of their own, and a process that watches over their process groups.

    This process starts with the first command. When the caller ends, however it ends, it kills all groups that are not
    `forgotten`. A program that starts a session or a process group of its own is out of its reach.
    """

    def __init__(self) -> None:
        self._watcher: _Watcher | None = None
        self._groups: set[int] = set()

    def start(self, command: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command for ``sh -c``; the options are those of Popen. For one thread at a time.

        Raises:
            OSError: out of memory, processes or files.
        """
        fd = self._running().fd
        words = ["/bin/sh", "-c", _ANNOUNCED.format(fd), command]
        process: subprocess.Popen[bytes] = subprocess.Popen(words, start_new_session=True, pass_fds=[fd], **options)
        self.watch(process.pid)  # in case there is no /dev/fd
        return process

    def watch(self, group: int) -> None:
        """Watch over a process group that somebody else has started."""
        self._groups.add(group)
        self._running().tell(f"+{group}")

    def forget(self, group: int) -> None:
        """Note that a program has ended; what it left running may stay."""
        self._groups.discard(group)
        if self._watcher is not None:
            self._watcher.tell(f"-{group}")

    def _running(self) -> _Watcher:
        if self._watcher is None or not self._watcher.is_running:
            self._watcher = _Watcher(self._groups)
        return self._watcher


class _Watcher:
    """The process, and the pipe through which it hears of groups; `fd` is the pipe's end for commands."""

    def __init__(self, groups: set[int]) -> None:
        alive, life = os.pipe()
        feed, self.fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                # Without site and user settings, it starts in a hundredth of a second.
                [sys.executable, "-I", "-S", str(Path(watch_groups.__file__)), str(alive), str(feed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[alive, feed],
                start_new_session=True,  # what ends our group or session must not end it
                cwd="/",
                env={},
            )
        except BaseException:
            os.close(life)
            os.close(self.fd)
            raise
        finally:
            os.close(alive)
            os.close(feed)
        self.end = weakref.finalize(self, _close, self._process, life, self.fd)
        self.end.atexit = False  # it would come before exit handlers that wait for what runs
        _RUNNING.add(self)
        os.set_blocking(self.fd, False)  # a watcher that somebody has stopped must not stop us
        for group in groups:
            self.tell(f"+{group}")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def tell(self, word: str) -> None:
        """Send a line; it is lost if the watcher is gone."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            os.write(self.fd, f"{word}\n".encode())


def _close(process: subprocess.Popen[bytes], life: int, feed: int) -> None:
    with contextlib.suppress(OSError):
        os.write(feed, b".\n")  # what programs have left running keeps the pipe open
    os.close(life)
    os.close(feed)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(watch_groups.LATE_SECONDS)


_RUNNING: weakref.WeakSet[_Watcher] = weakref.WeakSet()


@atexit.register  # before any consumer registers its `stop`, so that it runs after that
def _end_all() -> None:
    for watcher in list(_RUNNING):
        watcher.end()
