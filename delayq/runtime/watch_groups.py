"""The process of `GroupWatcher`: ``python -I -S watch_groups.py ALIVE FEED``.

ALIVE and FEED are descriptors of pipes. On FEED come lines: ``+12`` for a new process group, ``-12`` for one to forget,
``.`` for the end. When ALIVE ends, because the process that holds its other end is gone, all groups are killed. It
imports nothing that takes time or memory.
"""

import os
import select
import signal
import sys

LATE_SECONDS = 5.0
"""How long to wait for commands that were being started when their starter died: they hold FEED open until they end."""


def main(alive: int, feed: int) -> None:
    """Watch until ALIVE ends; then kill, and wait until no command can be on its way."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # as a service manager sends to all processes
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    rest, lives, ends = b"", True, False
    poll = select.poll()
    poll.register(alive, select.POLLIN)
    poll.register(feed, select.POLLIN)
    while not ends:
        ready = [descriptor for descriptor, _ in poll.poll(None if lives else LATE_SECONDS * 1000)]
        if feed in ready:
            data = os.read(feed, 65536)
            *lines, rest = (rest + data).split(b"\n")
            ends = not data or b"." in lines
            for line in lines:
                if line != b".":
                    (groups.add if line[:1] == b"+" else groups.discard)(int(line[1:]))
        if alive in ready:  # it has ended: nothing is ever written to it
            lives = False
            poll.unregister(alive)
        if ends or not lives:
            kill(groups)
        ends = ends or not ready


def kill(groups: set[int]) -> None:
    """Kill process groups, and forget them."""
    while groups:
        try:
            os.killpg(groups.pop(), signal.SIGKILL)
        except OSError:  # it has ended
            continue


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
