"""What processes use, as Linux reports it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SCHEDULED = 2  # the kind of clock: CPU time of all threads, including those that have ended


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants, to the microsecond."""
    return sum(_cpu_seconds(each) for each in family(pid))


def resident_bytes(pid: int) -> int:
    """Return the memory of a process and its descendants; shared memory counts for each."""
    return sum(_resident_bytes(each) for each in family(pid))


def family(pid: int) -> list[int]:
    """Return a process and its descendants."""
    found = [pid]
    for each in found:  # grows during the loop
        with contextlib.suppress(OSError):  # it has ended
            for task in Path(f"/proc/{each}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text("utf-8").split()]
    return found


def _cpu_seconds(pid: int) -> float:
    with contextlib.suppress(OSError):
        # The clock of another process, numbered as in clock_getcpuclockid(3). /proc/PID/stat counts in hundredths of a
        # second, which is too coarse for a process that does next to nothing.
        return time.clock_gettime((~pid << 3) | SCHEDULED)
    return 0.0


def _resident_bytes(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text("utf-8").split()[1]) * PAGE_BYTES
    return 0
