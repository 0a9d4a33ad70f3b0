"""Another client of a server: it sends a PING every millisecond and writes down how long each answer took.

SIGTERM ends it. Usage: python -m tests.harness.chaos.programs.ping SOCKET FILE
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from array import array
from pathlib import Path

PERIOD = 0.001


def main(address: str, file: Path) -> None:
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: ended.append(number))
    run_first(os.getpid(), 2)  # otherwise it measures how long it waits for a core itself
    times = array("d")  # for each PING: when it was sent, monotonic, and the seconds until its answer
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        file.touch()
        following = time.monotonic()
        while not ended:
            following = max(following + PERIOD, time.monotonic())
            time.sleep(max(0.0, following - time.monotonic()))
            sent = time.monotonic()
            connection.sendall(b"PING\r\n")
            connection.recv(64)
            times.extend((sent, time.monotonic() - sent))
    file.write_bytes(times.tobytes())


def run_first(pid: int, priority: int) -> bool:
    """Let a process run before all normal ones; return whether that is allowed here."""
    try:
        os.sched_setscheduler(pid, os.SCHED_FIFO, os.sched_param(priority))
    except (OSError, AttributeError):  # not allowed, or not on this system
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
