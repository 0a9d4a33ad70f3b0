"""The machine on which figures were measured, as far as it matters for them."""

from __future__ import annotations

import os
import platform
import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import hiredis
import redis

import delayq

LOOK_SECONDS = 3.0


def about(redis_version: str) -> dict[str, Any]:
    """Return what machine and which versions these are, and how busy it was before."""
    return {
        "at": now(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "redis": redis_version,
        "delayq": delayq.__version__,
        "redis-py": redis.__version__,
        "hiredis": hiredis.__version__,
        "longest_pause_ms": round(longest_pause_ms(), 2),
        "load_before": round(os.getloadavg()[0], 2),
    }


def now() -> str:
    """Return the time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def longest_pause_ms() -> float:
    """Return for how long this machine let a process stand still that wanted to run: the longest time in LOOK_SECONDS.

    What is late by less may be late for that reason.
    """
    longest, before = 0.0, time.perf_counter()
    end = before + LOOK_SECONDS
    while before < end:
        here = time.perf_counter()
        longest, before = max(longest, here - before), here
    return longest * 1000


def _processor() -> str:
    match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1].strip() if match else platform.machine()
